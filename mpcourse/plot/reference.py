"""One variant after the other beside the same reference, where many curves in one panel would hide each other."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from mpcourse.plot.style import GREY, INK, color, figure, label


def against_reference(
    x: Sequence[float],
    curves: Mapping[str, Sequence[Sequence[float]]],
    reference: str,
    x_label: str,
    y_label: str,
    title: str,
) -> Figure:
    """A panel for each curve but the reference, which is dashed and grey in all of them; all have the same axes.

    curves: name -> a curve over `x` for each seed. Drawn are the mean over seeds, and a band from least to most.
    reference: one of these names. Raises ValueError for a reference that is not there, or that has no other beside it.
    """
    others = [name for name in curves if name != reference]
    if reference not in curves or not others:
        raise ValueError(f"{reference!r} beside nothing: curves are {', '.join(curves) or 'none'}")
    made, axes = figure(title, columns=len(others), width=8.2, height=2.7)
    for i, (name, axis) in enumerate(zip(others, axes, strict=True)):
        drawn = ((reference, GREY, "--", 1.2), (name, color(i), "-", 1.8))
        for which, ink, dashes, width in drawn:
            y = np.array(curves[which])
            axis.plot(x, y.mean(0), color=ink, linestyle=dashes, linewidth=width, label=which)
            axis.fill_between(x, y.min(0), y.max(0), color=ink, alpha=0.25, linewidth=0)
        axis.set_title(name, fontsize=9, color=INK)
        axis.sharex(axes[0])
        axis.sharey(axes[0])
        axis.label_outer()
        label(axis, x_label, y_label if axis is axes[0] else "")
    axes[0].legend(handles=axes[0].lines[:1], fontsize=8, frameon=False, loc="upper left")
    return made
