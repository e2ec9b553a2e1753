"""What several ways reach, as dots: a row for each way, a panel for each quantity."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from mpcourse.plot.style import color, figure, label


def dots(panels: Mapping[str, Mapping[str, Sequence[float]]], title: str) -> Figure:
    """Draw the mean over seeds as a dot, and two standard errors of it to each side as a bar.

    panels: label of an x axis -> way -> a value for each seed, two or more; all panels have the same ways.
    """
    ways = list(next(iter(panels.values())))
    made, axes = figure(title, columns=len(panels), width=7.4, height=0.24 * len(ways) + 1.0)
    for axis, (name, values) in zip(axes, panels.items(), strict=True):
        for row, way in enumerate(ways):
            seeds = np.array(values[way], float)
            reach = 2 * seeds.std(ddof=1) / len(seeds) ** 0.5
            axis.errorbar(seeds.mean(), row, xerr=reach, fmt="o", color=color(0), markersize=5, elinewidth=1.6)
        axis.set_yticks(range(len(ways)), ways if axis is axes[0] else [""] * len(ways))
        axis.set_ylim(len(ways) - 0.5, -0.5)
        label(axis, name, "")
    return made
