"""Copies between devices in the order in which they were made, each beside the gradient's copy back."""

from collections.abc import Iterable

from matplotlib.figure import Figure

from mpcourse.plot.records import ARROW, events_of, lane_color, lane_order
from mpcourse.plot.style import GREY, INK, figure, shade
from mpcourse.plot.timeline import STRENGTHS
from mpcourse.virtual import Box, Event
from mpcourse.virtual.gpus.ledger import size


def twins(copies: Iterable[Event]) -> list[tuple[Event, Event | None]]:
    """Return each copy of forward, in order, with the copy of backward that its gradient takes, or None.

    Backward passes the copies of forward from the last to the first, and leaves out those whose gradient is not needed.
    """
    copies = list(copies)
    back = [e for e in copies if e.phase == "backward"]
    pairs: list[tuple[Event, Event | None]] = []
    for e in reversed([e for e in copies if e.phase == "forward"]):
        origin, _, target = e.lane.partition(ARROW)
        mine = bool(back) and back[0].lane == f"{target}{ARROW}{origin}" and back[0].nbytes == e.nbytes
        pairs.append((e, back.pop(0) if mine else None))
    return pairs[::-1]


def copies(source: Box | Iterable[Event], title: str) -> Figure:
    """Draw the copies of a training step as arrows: forward from left to right, then backward, mirrored.

    source: a box, or events, of one step. A dotted line shows that a copy of forward has no copy in backward.
    Raises ValueError where nothing was copied in forward.
    """
    pairs = twins(e for e in events_of(source) if e.kind == "copy")
    if not pairs:
        raise ValueError("no copies to draw: no event of forward has the kind 'copy'")
    names = sorted({name for e, _ in pairs for name in e.lane.split(ARROW)}, key=lane_order)
    made, (axis,) = figure(title, height=0.7 * len(names) + 1.2)
    n = len(pairs)
    for row, name in enumerate(names):
        axis.axhline(row, color=GREY, linewidth=1.2, zorder=0)
        axis.text(-0.75, row, name, fontsize=9, color=INK, ha="right", va="center")
    for i, (e, twin) in enumerate(pairs):
        places = [
            (i, e, f"{i + 1}\n{size(e.nbytes)}".replace(" ", "\n")),
            (2 * n - i, twin, f"back of {i + 1}"),
        ]
        for x, copy, text in places:
            origin, target = (names.index(name) for name in (copy or e).lane.split(ARROW))
            if copy is None:
                axis.plot([x, x], [origin, target], ":", color=GREY, linewidth=1.5)
                text = f"none for {i + 1}"
            else:
                ink = shade(lane_color(copy.lane), STRENGTHS[copy.phase])  # as in a timeline
                axis.annotate(
                    "", (x, target), (x, origin), arrowprops={"arrowstyle": "-|>", "color": ink, "linewidth": 2}
                )
            paper = {"facecolor": axis.get_facecolor(), "edgecolor": "none", "pad": 1.5}
            axis.text(x, (origin + target) / 2, text, fontsize=8, color=INK, ha="center", va="center", bbox=paper)
    axis.text((n - 1) / 2, -0.45, "forward", fontsize=9, color=INK, ha="center")
    axis.text(n + (n + 1) / 2, -0.45, "backward", fontsize=9, color=INK, ha="center")
    axis.set_xlim(-0.7, 2 * n + 1.2)
    axis.set_ylim(len(names) - 0.6, -0.6)
    axis.set_axis_off()
    return made
