"""A transformer's layer cut over ranks: which part each rank has, and where the ranks meet."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mpcourse.plot.style import INK, color, figure, shade

HATCHES = ("", "///", "...", "xx")
# Of one half of the layer: name, width, and how it is cut: "columns", "heads", "rows", or "tokens" with sequence
# parallelism. A name of several words is several matrices side by side.
ATTENTION = (("norm", 0.7, "tokens"), ("Q K V", 1.5, "columns"), ("heads", 1.0, "heads"), ("out", 1.0, "rows"))
MLP = (("norm", 0.7, "tokens"), ("first", 1.4, "columns"), ("GELU", 0.9, "columns"), ("second", 1.0, "rows"))
# Collective calls, forward and backward, before and behind the split layers, without and with sequence parallelism.
BEFORE = (("f: nothing", "all-reduce"), ("all-gather", "reduce-scatter"))
BEHIND = (("g: all-reduce", "nothing"), ("reduce-scatter", "all-gather"))
HEIGHT, GAP, MEETING = 1.0, 0.14, 0.62


def tensor_layer(ranks: int, title: str, sequence: bool = False) -> Figure:
    """Draw a layer, with each rank's part in its colour and how it is cut.

    Grey is what all ranks have. Halves of a matrix touch; tokens lie apart. A line is drawn where ranks meet, with the
    collective call of the forward pass, and in brackets that of the backward pass.
    ranks: 2 to 4. Raises ValueError for other numbers.
    sequence: with sequence parallelism.
    """
    if not 2 <= ranks <= 4:
        raise ValueError(f"2 to 4 ranks can be drawn apart, not {ranks}")
    made, (axis,) = figure(title, width=8.0, height=2.3)
    at = 0.0
    for half in (ATTENTION, MLP):
        for place, (name, wide, cut) in enumerate(half):
            if place == 1:
                at = _meeting(axis, at, *BEFORE[sequence])
            at = _block(axis, at, wide, name, cut if cut != "tokens" or sequence else "", ranks) + GAP
        at = _meeting(axis, at, *BEHIND[sequence])
        at = _block(axis, at, 0.7, "drop, +", "tokens" if sequence else "", ranks) + GAP
    axis.set_xlim(-0.1, at)
    axis.set_ylim(-0.72, HEIGHT + 0.6)
    axis.axis("off")
    ranks_and_all = [*range(ranks), *([] if sequence else [None])]
    handles = [Rectangle((0, 0), 1, 1, **_style(rank)) for rank in ranks_and_all]
    names = ["all ranks have it" if rank is None else f"rank {rank}" for rank in ranks_and_all]
    made.legend(handles, names, fontsize=8, frameon=False, loc="outside lower center", ncols=ranks + 1)
    return made


def _style(rank: int | None) -> dict[str, Any]:
    if rank is None:
        return {"facecolor": "#DDDDDD", "edgecolor": "white"}
    return {"facecolor": shade(color(rank), 0.7), "hatch": HATCHES[rank], "edgecolor": "white"}


def _block(axis: Axes, at: float, wide: float, name: str, cut: str, ranks: int) -> float:
    """Draw one operation from `at` on, in parts of the ranks; return its end."""
    words = name.split() if cut == "columns" else [name]
    wide_each, high_each, apart = wide / len(words) / ranks, HEIGHT / ranks, 0.15 if cut == "tokens" else 0.0
    for rank in range(ranks) if cut else (None,):
        if rank is None:
            places = [(at, 0.0, wide, HEIGHT)]
        elif cut in ("columns", "heads"):
            places = [(at + wide_each * (word * ranks + rank), 0.0, wide_each, HEIGHT) for word in range(len(words))]
        else:  # rows and tokens lie one below the other
            places = [(at, high_each * (ranks - 1 - rank) + apart / 2, wide, high_each - apart)]
        for x, y, w, h in places:
            axis.add_patch(Rectangle((x, y), w, h, gid=name, **_style(rank)))
    for word, text in enumerate(words):
        middle = at + wide * (word + 0.5) / len(words)
        axis.text(middle, HEIGHT + 0.3, text, ha="center", va="bottom", fontsize=8, color=INK)
    axis.text(at + wide / 2, HEIGHT + 0.05, cut and f"by {cut}", ha="center", va="bottom", fontsize=6.5, color=INK)
    return at + wide


def _meeting(axis: Axes, at: float, forward: str, backward: str) -> float:
    """Draw the border of a layer's parts, with what the ranks do there; return its end."""
    middle = at + MEETING / 2 - GAP / 2
    axis.plot([middle, middle], [-0.12, HEIGHT + 0.05], color=INK, linewidth=1.2)
    axis.text(middle, -0.18, forward, ha="center", va="top", fontsize=7.5, color=INK)
    axis.text(middle, -0.44, f"({backward})", ha="center", va="top", fontsize=7.5, color=INK)
    return at + MEETING
