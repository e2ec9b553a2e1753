"""One record for everything that takes time: operations of a GPU, copies over a link, calls of the host.

Virtual GPUs, virtual ranks and measurements of real ones all make lists of `Event`. Plots and the export read only
these.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Event(NamedTuple):
    """Something that occupied one lane for some time. All times are in seconds.

    lane: "cpu" (the host), "vgpu:0", "vgpu:0 -> vgpu:1" (one direction of a link), "rank 3", ...
    name: what it was, e.g. "addmm".
    kind: "compute", "copy", "enqueue" (the host issues work) or "wait".
    start, end: when the lane was occupied.
    issued: when the host had enqueued it; `start` is later where the lane or an input was not ready.
    nbytes: bytes read and written, or moved.
    flops: floating-point operations.
    asked: "file.py:12", the line of the program that asked for it.
    phase: "forward", "backward", "optimizer" or "".
    """

    lane: str
    name: str
    kind: str
    start: float
    end: float
    issued: float = 0.0
    nbytes: int = 0
    flops: int = 0
    asked: str = ""
    phase: str = ""

    @property
    def seconds(self) -> float:
        """Seconds from `start` to `end`."""
        return self.end - self.start


def span(events: Iterable[Event]) -> tuple[float, float]:
    """Return first start and last end, in seconds; (0, 0) if there are no events.

    events: in any order.
    """
    events = list(events)
    return min((e.start for e in events), default=0.0), max((e.end for e in events), default=0.0)


def busy(events: Iterable[Event], lane: str) -> float:
    """Return the seconds during which a lane computed: what nvidia-smi calls utilisation, times the time.

    events: in any order, of any lanes.
    lane: as events name it, e.g. "vgpu:0".
    """
    return sum(e.seconds for e in events if e.lane == lane and e.kind == "compute")


def chrome_trace(events: Iterable[Event]) -> dict:
    """Return events in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

    events: in any order.

    Times are in microseconds, one process with a thread for each lane, in the order in which lanes first appear.
    """
    lanes: dict[str, int] = {}
    rows: list[dict] = []
    for e in events:
        thread = lanes.setdefault(e.lane, len(lanes))
        known = {"asked": e.asked, "bytes": e.nbytes, "flops": e.flops, "phase": e.phase}
        rows.append(
            {"name": e.name, "cat": e.kind, "ph": "X", "pid": 0, "tid": thread}
            | {"ts": e.start * 1e6, "dur": e.seconds * 1e6, "args": {k: v for k, v in known.items() if v}}
        )
    names = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": thread, "args": {"name": lane}}
        for lane, thread in lanes.items()
    ]
    return {"traceEvents": names + rows, "displayTimeUnit": "ms"}


def write_chrome_trace(events: Iterable[Event], path: str | Path) -> Path:
    """Write `chrome_trace(events)` as JSON; return the path.

    events: in any order.
    path: of the file.
    """
    path = Path(path)
    path.write_text(json.dumps(chrome_trace(events)))
    return path
