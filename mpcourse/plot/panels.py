"""The same curves against several quantities, side by side."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from mpcourse.plot.style import color, figure, label

Curve = tuple[Sequence[float], Sequence[float]]


def panels(curves: Mapping[str, Mapping[str, Curve]], y_label: str, title: str) -> Figure:
    """curves: what x is -> name of a curve -> (x, y). Every panel has the same heights; x grows by factors.

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
