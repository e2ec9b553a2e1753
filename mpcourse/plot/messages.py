"""What a message between two ranks costs."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from mpcourse.plot.style import INK, color, figure, label


def message_cost(sizes: Sequence[int], seconds: Sequence[float], title: str) -> Figure:
    """Time of one message against its size, and the line alpha + beta n whose relative errors are least in squares.

    sizes: bytes. seconds: of one message of that size, one way.
    """
    made, (axis,) = figure(title)
    size, time = np.array(sizes, float), np.array(seconds, float)
    alpha, beta = np.linalg.lstsq(np.stack([1 / time, size / time], axis=1), np.ones(len(size)), rcond=None)[0]
    axis.loglog(size, 1e6 * time, "o", color=color(0), markersize=5, label="measured")
    x = np.geomspace(size[0], size[-1], 200)
    axis.loglog(x, 1e6 * (alpha + beta * x), "--", color=color(1), linewidth=1.5, label="alpha + beta n")
    axis.axhline(1e6 * alpha, color=INK, linewidth=0.7, linestyle=":")
    for text, point, shift, side in (
        (f"alpha = {1e6 * alpha:.2g} µs", (size[-1], 1e6 * alpha), (0, 4), "right"),  # there no point is near
        (
            f"beta = {1e9 * beta:.2g} ns a byte, 1 / beta = {1e-9 / beta:.2g} GB/s",
            (size[-1], 1e6 * (alpha + beta * size[-1])),
            (-12, -3),
            "right",
        ),
    ):
        axis.annotate(text, point, shift, textcoords="offset points", fontsize=8, ha=side)
    label(axis, "message size n (bytes)", "one way (µs)")
    axis.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(0, 0.9))
    return made
