"""What collectives do: the arrays of all ranks before and after, as boxes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mpcourse.plot.style import INK, color, figure, ink_on

GAP = 1.6  # between the arrays before and after, in boxes
LETTERS = "ABCDEFG"  # of ranks, because in a grey print two colours may look alike


def marked(ranks: int) -> np.ndarray:
    """Make for each rank as many numbers as there are ranks, each one bit, so that sums show what was added.

    Shape (ranks, ranks), int64. Raises ValueError for more than 7 ranks, which need more than 63 bits.
    """
    if not 1 <= ranks <= 7:
        raise ValueError(f"1 to 7 ranks can be told apart in a number of 64 bits, not {ranks}")
    return 1 << np.arange(ranks * ranks, dtype=np.int64).reshape(ranks, ranks)


def collectives(calls: Mapping[str, tuple[Any, Any]], title: str, columns: int = 2) -> Figure:
    """Draw a panel for each call: on the left what each rank has before it, on the right what it has after it.

    calls: name -> (before, after), each of shape (ranks, numbers), with numbers of `marked` and their sums; 0: nothing.
    Colour and letter show the rank that a number comes from (A: rank 0), and the digit its place there. Stripes show a
    sum, on which only the place is written.
    """
    ranks = len(next(iter(calls.values()))[0])
    rows = -(-len(calls) // columns)
    made, axes = figure(
        title, columns=columns, rows=rows, width=3.6 * columns, height=0.27 * (ranks + 2.2) * rows + 0.3
    )
    for axis, (name, (before, after)) in zip(axes, calls.items(), strict=False):
        width = np.shape(before)[1]
        _boxes(axis, np.asarray(before), 0.0, ranks)
        _boxes(axis, np.asarray(after), width + GAP, ranks)
        arrow = {"arrowstyle": "->", "color": INK}
        axis.annotate("", (width + GAP - 0.3, ranks / 2), (width + 0.3, ranks / 2), arrowprops=arrow)
        axis.set_title(name, fontsize=9, color=INK, loc="left", pad=3)
        axis.set(xlim=(-0.1, 2 * width + GAP + 0.8), ylim=(ranks + 0.1, -0.1))
        axis.set_yticks([rank + 0.5 for rank in range(ranks)], [f"rank {rank}" for rank in range(ranks)])
    for axis in axes:
        axis.spines[:].set_visible(False)
        axis.grid(visible=False)
        axis.tick_params(length=0)
        axis.set_xticks([])
    for axis in axes[len(calls) :]:
        axis.set_axis_off()
    return made


def _boxes(axis: Axes, numbers: np.ndarray, left: float, ranks: int) -> None:
    for (row, column), number in np.ndenumerate(numbers):
        origins = [divmod(bit, ranks) for bit in range(ranks * ranks) if int(number) >> bit & 1]
        for i, (rank, _) in enumerate(origins):
            stripe = 1 / len(origins)
            axis.add_patch(Rectangle((left + column + i * stripe, row), stripe, 1, facecolor=color(rank)))
        axis.add_patch(Rectangle((left + column, row), 1, 1, facecolor="none", edgecolor="white", linewidth=1.5))
        axis.add_patch(Rectangle((left + column, row), 1, 1, facecolor="none", edgecolor="#CCCCCC", linewidth=0.6))
        if places := {place for _, place in origins}:
            place = str(places.pop()) if len(places) == 1 else "?"
            at = (left + column + 0.5, row + 0.5)
            if len(origins) == 1:
                rank = origins[0][0]
                ink = ink_on(color(rank))
                axis.text(*at, f"{LETTERS[rank]}{place}", fontsize=7, color=ink, ha="center", va="center")
            else:
                paper = {"boxstyle": "circle,pad=0.15", "facecolor": "white", "edgecolor": "none"}
                axis.text(*at, place, fontsize=7, color=INK, ha="center", va="center", bbox=paper)
