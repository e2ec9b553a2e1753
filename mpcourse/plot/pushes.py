"""What workers bring to a parameter server: when each computes a gradient, and how stale that is when it is used."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mpcourse.plot.style import GREY, INK, color, figure, label
from mpcourse.virtual import Event

if TYPE_CHECKING:
    from mpcourse.data_parallel.servers import Push

FRESH, STALE, LATE = color(0), color(1), "white"
WAITS: dict[str, Any] = {"color": GREY, "linewidth": 0.8, "alpha": 0.5}
SHORT = 0.01  # of the axis: a shorter wait is not seen


def pushes(events: Iterable[Event], brought: "Sequence[Push]", title: str, end: float) -> Figure:
    """Draw arrivals at the server above, and below each worker's gradients, from the first start to `end` seconds.

    events: of a run on virtual ranks. brought: what the only server recorded, `Served.pushes[0]`. Each bar shows the
    staleness of the gradient that is computed in it, or a dash where the gradient is dropped.
    """
    computed = [e for e in events if e.kind == "compute"]
    begun = min(e.start for e in computed)
    workers = sorted({push.worker for push in brought})
    made, (axis,) = figure(title, height=0.28 * len(workers) + 1.3)
    waits, drawn = False, set()
    for row, worker in enumerate(workers, start=1):
        axis.axhline(row, zorder=0, **WAITS)
        spans = [e for e in computed if e.lane == f"rank {worker}"]
        mine = [push for push in brought if push.worker == worker]
        gaps = [later.start - e.end for e, later in pairwise(spans) if e.end < begun + end]
        waits = waits or max(gaps, default=0.0) > SHORT * end
        for e, push in zip(spans, mine, strict=False):  # a gradient that is in flight at the end is not brought
            start, stop = 1e3 * (e.start - begun), 1e3 * (min(e.end - begun, end))
            if start >= 1e3 * end:
                break
            fill = LATE if not push.applied else STALE if push.staleness else FRESH
            axis.barh(row, stop - start, left=start, height=0.75, facecolor=fill,
                      edgecolor=GREY if fill == LATE else "white", linewidth=0.8)  # fmt: skip
            drawn.add(fill)
            text = str(push.staleness) if push.applied else "-"
            axis.text((start + stop) / 2, row, text, fontsize=7, color="white" if fill == FRESH else INK,
                      ha="center", va="center_baseline", clip_on=True)  # fmt: skip
    for push in brought:
        if push.seconds <= end:
            axis.plot([1e3 * push.seconds] * 2, [-0.35, 0.35], color=INK, linewidth=1.2)
    axis.set(xlim=(0, 1e3 * end), ylim=(len(workers) + 0.6, -0.6))
    axis.set_yticks(range(len(workers) + 1), ["server receives", *(f"rank {worker}" for worker in workers)])
    label(axis, "milliseconds; in each bar the staleness of its gradient", "")
    kinds = {FRESH: "gradient of the newest weights", STALE: "stale gradient", LATE: "dropped gradient"}
    shown: list[Artist] = [
        Patch(facecolor=fill, edgecolor=GREY if fill == LATE else fill, label=name)
        for fill, name in kinds.items()
        if fill in drawn
    ]
    if waits:
        shown.append(Line2D([], [], label="worker waits", **WAITS))
    made.legend(handles=shown, fontsize=8, frameon=False, loc="outside lower center", ncols=4)
    return made
