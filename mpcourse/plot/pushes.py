"""What workers bring to a parameter server: when each computes a gradient, and how stale that is when it is used."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mpcourse.plot.style import GREY, INK, color, figure, label
from mpcourse.virtual import Event

if TYPE_CHECKING:
    from mpcourse.data_parallel.servers import Push

FRESH, STALE, LATE = color(0), color(1), "#BBBBBB"


def pushes(events: Iterable[Event], brought: "Sequence[Push]", title: str, end: float) -> Figure:
    """Above, arrivals at the server; below, each worker's gradients. From the first one's start to `end` seconds.

    events: of a run on virtual ranks. brought: what the only server saw, `Served.pushes[0]`. In each bar stands the
    staleness of the gradient that is computed there.
    """
    computed = [e for e in events if e.kind == "compute"]
    begun = min(e.start for e in computed)
    workers = sorted({push.worker for push in brought})
    made, (axis,) = figure(title, height=0.28 * len(workers) + 1.3)
    for row, worker in enumerate(workers, start=1):
        axis.axhline(row, color=GREY, linewidth=0.8, alpha=0.5, zorder=0)
        spans = [e for e in computed if e.lane == f"rank {worker}"]
        mine = [push for push in brought if push.worker == worker]
        for e, push in zip(spans, mine, strict=False):  # a gradient that is under way in the end is not brought
            start, stop = 1e3 * (e.start - begun), 1e3 * (min(e.end - begun, end))
            if start >= 1e3 * end:
                break
            fill = LATE if not push.applied else STALE if push.staleness else FRESH
            axis.barh(row, stop - start, left=start, height=0.75, color=fill, edgecolor="white", linewidth=0.8)
            text = str(push.staleness) if push.applied else "-"
            axis.text((start + stop) / 2, row, text, fontsize=7, color="white" if fill == FRESH else INK,
                      ha="center", va="center", clip_on=True)  # fmt: skip
    for push in brought:
        if push.applied and push.seconds <= end:
            axis.plot([1e3 * push.seconds] * 2, [-0.35, 0.35], color=INK, linewidth=1.2)
    axis.set(xlim=(0, 1e3 * end), ylim=(len(workers) + 0.6, -0.6))
    axis.set_yticks(range(len(workers) + 1), ["server receives", *(f"rank {worker}" for worker in workers)])
    label(axis, "milliseconds; in each bar the staleness of its gradient", "")
    kinds = {FRESH: "of the newest weights", STALE: "stale", LATE: "dropped"}
    present = {FRESH: any(p.applied and not p.staleness for p in brought), STALE: any(p.staleness for p in brought)}
    present[LATE] = any(not p.applied and p.seconds <= end for p in brought)
    shown = [Patch(color=fill, label=name) for fill, name in kinds.items() if present[fill]]
    made.legend(handles=shown, fontsize=8, frameon=False, loc="outside lower center", ncols=3)
    return made
