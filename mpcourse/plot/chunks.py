"""Which ranks' sums a rank's chunks hold: the ring all-reduce and its like, round by round."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from mpcourse.plot.style import INK, color, figure

MOST = 5  # panels in a row
CHANGED: dict[str, Any] = {"edgecolor": "black", "linewidth": 1.6}
COMPLETE: dict[str, Any] = {"color": "white", "markeredgecolor": "black", "markersize": 4, "marker": "o"}


def chunks(counts: np.ndarray, only: Sequence[int] | None = None, title: str | None = None) -> Figure:
    """Draw one panel per round: ranks down, chunks of x across, in each chunk a stripe for each rank in its sum.

    counts: as `mpcourse.collectives.rounds` returns them. only: the rounds to draw; None: all of them.
    A chunk that a round has changed has a black frame. A chunk that holds every rank once is complete, and has a dot. A
    rank that is in a sum more than once has its number written in its stripe. Raises ValueError for a round that does
    not exist.
    """
    shown = list(range(len(counts)) if only is None else only)
    if not shown or not all(0 <= t < len(counts) for t in shown):
        raise ValueError(f"rounds are 0 to {len(counts) - 1}; asked for {shown}")
    ranks, length = counts.shape[1:3]
    rows = -(-len(shown) // MOST)
    columns = -(-len(shown) // rows)
    width, height = max(0.34 * length, 1.1) + 0.1, 0.3 * ranks + 0.55
    made, axes = figure(
        title or "Whose numbers each rank's chunks hold", columns, max(columns * width + 0.5, 5.0),
        rows * height + 0.7, rows,
    )  # fmt: skip
    for i, (t, axis) in enumerate(zip(shown, axes, strict=False)):
        _panel(axis, counts, t, names=i % columns == 0)
    for axis in axes[len(shown) :]:
        axis.axis("off")
    handles = {
        "changed in this round": Patch(facecolor="none", **CHANGED),
        "sum of all ranks": Line2D([], [], linestyle="none", **COMPLETE),
    }
    made.legend([*handles.values()], [*handles], fontsize=8, frameon=False, loc="outside lower center", ncols=2)
    return made


def _panel(axis: Axes, counts: np.ndarray, t: int, names: bool) -> None:
    """Draw one round. names: whether to write the ranks' names, which all panels of a row share."""
    ranks, length = counts.shape[1:3]
    for rank in range(ranks):
        for i in range(length):
            _cell(axis, i, rank, counts[t, rank, i], t > 0 and (counts[t, rank, i] != counts[t - 1, rank, i]).any())
    axis.set(xlim=(-0.08, length + 0.02), ylim=(ranks + 0.02, -0.08))
    axis.set_xticks(np.arange(length) + 0.45, [str(i) for i in range(length)] if length > 1 else [""])
    axis.xaxis.tick_top()
    axis.tick_params(labelsize=7, pad=-1)
    axis.xaxis.set_label_position("top")
    axis.set_xlabel("chunk" if length > 1 else "whole array", fontsize=7, color=INK, loc="left", labelpad=2)
    axis.set_yticks(np.arange(ranks) + 0.45, [f"rank {r}" if names else "" for r in range(ranks)])
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.grid(False)
    axis.set_title("before" if t == 0 else f"round {t}", fontsize=9, color=INK, loc="left")


def _cell(axis: Axes, column: int, row: int, members: np.ndarray, changed: bool) -> None:
    stripe = 0.9 / len(members)
    axis.add_patch(Rectangle((column, row), 0.9, 0.9, facecolor="#F2F2F2", edgecolor="none"))
    for s in np.flatnonzero(members):
        axis.add_patch(Rectangle((column + s * stripe, row), stripe, 0.9, facecolor=color(int(s)), edgecolor="none"))
        if members[s] > 1:
            place = (column + (s + 0.5) * stripe, row + 0.45)
            axis.text(*place, str(members[s]), fontsize=7, color="white", ha="center", va="center")
    edge: dict[str, Any] = CHANGED if changed else {"edgecolor": "#BBBBBB", "linewidth": 0.6}
    axis.add_patch(Rectangle((column, row), 0.9, 0.9, fill=False, **edge))
    if (members == 1).all() and len(members) > 1:
        axis.plot(column + 0.45, row + 0.45, **COMPLETE)
