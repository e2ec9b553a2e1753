"""Which rank waits for which, when no rank can go on."""

import math

from matplotlib.figure import Figure

from mpcourse.plot.style import GREY, INK, color, figure
from mpcourse.virtual import Deadlock

MOST = 24  # ranks that a circle has room for


def deadlock(error: Deadlock, title: str | None = None) -> Figure:
    """Draw the ranks in a circle, with an arrow from each to those that it waits for; circular waits are bold.

    error: as `mpcourse.virtual.run` raises it. Beside each rank is the call in which it waits. A rank that has
    returned, or that no rank waits for and that does not wait, is grey. Raises ValueError for more ranks than a figure
    can show.
    """
    shown = sorted({w.rank for w in error.waits} | {p for w in error.waits for p in w.peers})
    if len(shown) > MOST:
        raise ValueError(f"{len(shown)} ranks wait: no figure tells more than {MOST} apart. The error's text does")
    around = dict(zip(error.cycle, [*error.cycle[1:], *error.cycle[:1]], strict=True))
    if title is None:
        title = "No rank can go on" + (f": {len(around)} in a circular wait" if around else "")
    pair = len(shown) <= 2  # side by side, because a circle would leave most of the figure empty
    made, (axis,) = figure(title, width=6.4, height=1.5 if pair else 4.2)
    axis.axis("off")
    axis.set(xlim=(-2.1, 2.1), ylim=(-0.5, 0.5) if pair else (-1.45, 1.45))
    begin = -math.pi / 2 if pair else 0.0
    at = {
        rank: (math.sin(begin + 2 * math.pi * i / len(shown)), math.cos(begin + 2 * math.pi * i / len(shown)))
        for i, rank in enumerate(shown)
    }
    for wait in error.waits:
        for peer in wait.peers:
            bold = around.get(wait.rank) == peer
            axis.annotate(
                "", at[peer], at[wait.rank], zorder=1,
                arrowprops={
                    "arrowstyle": "-|>", "shrinkA": 14, "shrinkB": 14, "mutation_scale": 14,
                    "linewidth": 2.2 if bold else 0.8, "color": color(wait.rank) if bold else GREY,
                    "connectionstyle": "arc3,rad=0.15",
                },
            )  # fmt: skip
    calls = {w.rank: f"{w.call}\n{w.line}" for w in error.waits}
    for rank, (x, y) in at.items():
        waits = rank in calls
        axis.plot(x, y, "o", color=color(rank) if waits else "#CCCCCC", markersize=22, zorder=2)
        axis.text(x, y, str(rank), color="white" if waits else INK, ha="center", va="center", fontsize=10, zorder=3)
        side = "center" if abs(x) < 0.2 else "left" if x > 0 else "right"
        offset = (0, 18 * (1 if y > 0 else -1)) if side == "center" else (18 if x > 0 else -18, 0)
        axis.annotate(
            calls.get(rank, "has returned"), (x, y), offset, textcoords="offset points", fontsize=8, color=INK, ha=side,
            va="center" if side != "center" else "bottom" if y > 0 else "top",
        )  # fmt: skip
    return made
