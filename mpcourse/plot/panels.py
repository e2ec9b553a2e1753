"""The same curves against several quantities, or several quantities of the same runs, side by side."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from mpcourse.plot.style import MARKERS, color, figure, label

Curve = tuple[Sequence[float], Sequence[float]]


def panels(curves: Mapping[str, Mapping[str, Curve]], y_label: str, title: str) -> Figure:
    """Draw the same curves against several quantities, a panel for each, with equal heights.

    curves: what x is -> name of a curve -> (x, y). x is logarithmic.

    Raises ValueError where there is nothing to draw.
    """
    if not curves or not all(curves.values()):
        raise ValueError("no curves to draw")
    made, axes = figure(title, columns=len(curves))
    for axis, (x_label, each) in zip(axes, curves.items(), strict=True):
        for i, (name, (x, y)) in enumerate(each.items()):
            axis.plot(x, y, color=color(i), linestyle=("-", "--", ":", "-.")[i % 4], linewidth=1.8, label=name)
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(numticks=5))
        axis.sharey(axes[0])
        label(axis, x_label, y_label if axis is axes[0] else "")
    axes[0].legend(fontsize=8, frameon=False)
    return made


def side_by_side(quantities: Mapping[str, Curve], x_label: str, title: str) -> Figure:
    """Draw a panel for each quantity, with its own heights from 0.

    quantities: name -> (x, y). x is logarithmic, by factors of two.

    Raises ValueError where there is nothing to draw.
    """
    if not quantities:
        raise ValueError("no quantities to draw")
    made, axes = figure(title, columns=len(quantities))
    for i, (axis, (name, (x, y))) in enumerate(zip(axes, quantities.items(), strict=True)):
        axis.plot(x, y, color=color(i), marker=MARKERS[i], markersize=5, linewidth=1.5)
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))  # 1024, as in the text, not 2^10
        axis.set_ylim(0, 1.05 * max(y))
        label(axis, x_label, name)
    return made
