"""How precisely a mean over seeds is known: a line, and a band of two standard errors to each side of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike


def draw_mean(axis: Axes, x: Sequence[float], seeds: ArrayLike, color: str, **look: Any) -> Line2D:
    """Draw the mean over seeds, and its band; return the line.

    x: (n,) positions. seeds: for each seed, two or more, n values. look: keywords of Axes.plot.
    """
    y = np.array(seeds, float)
    mean, error = y.mean(0), y.std(0, ddof=1) / len(y) ** 0.5
    axis.fill_between(x, mean - 2 * error, mean + 2 * error, color=color, alpha=0.25, linewidth=0)
    return axis.plot(x, mean, color=color, **look)[0]
