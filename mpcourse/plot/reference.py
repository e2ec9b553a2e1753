"""Each variant in a panel beside the same reference, because many curves in one panel would hide each other."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from mpcourse.plot.bands import draw_mean
from mpcourse.plot.style import COLORS, GREY, INK, figure, label


def against_reference(
    x: Sequence[float],
    curves: Mapping[str, Sequence[Sequence[float]]],
    reference: str,
    variants: str,
    x_label: str,
    y_label: str,
    title: str,
) -> Figure:
    """Draw a panel for each curve except the reference, which is dashed and grey in all of them.

    All panels have the same axes.
    curves: name -> a curve over `x` for each seed; all have equally many seeds, two or more. Drawn are the means over
    seeds, and bands of two standard errors to each side. reference: one of these names. variants: what the legend calls
    the other curves.
    Raises ValueError for a reference that does not exist, or if there is no other curve.
    """
    others = [name for name in curves if name != reference]
    if reference not in curves or not others:
        raise ValueError(f"{reference!r} beside nothing: curves are {', '.join(curves) or 'none'}")
    made, axes = figure(title, columns=len(others), width=7.4, height=2.9)
    for name, axis in zip(others, axes, strict=True):
        other = draw_mean(axis, x, curves[name], COLORS[0], linewidth=1.8)
        beside = draw_mean(axis, x, curves[reference], GREY, linewidth=1.4, linestyle="--")
        axis.set_title(name, fontsize=9, color=INK)
        axis.sharex(axes[0])
        axis.sharey(axes[0])
        axis.label_outer()
        label(axis, x_label, f"{y_label}, {len(curves[reference])} seeds" if axis is axes[0] else "")
    made.legend([other, beside], [variants, reference], fontsize=8, frameon=False, loc="outside lower center", ncols=2)
    return made
