"""Events from a trace in the Trace Event Format, the JSON that Perfetto opens, so that `timeline` can draw them."""

import json
from pathlib import Path

from mpcourse.virtual import Event

# How torch.profiler names what belongs to a phase of a training step. Ranges that a program names by
# torch.profiler.record_function may have the phases' own names.
PHASES = {
    "DistributedDataParallel.forward": "forward",
    "forward": "forward",
    "autograd::engine::evaluate_function": "backward",
    "backward": "backward",
    "Optimizer.step": "optimizer",
    "optimizer": "optimizer",
}
BACKENDS = ("gloo:", "nccl:")  # of torch.distributed, with which names of collectives begin


def read_trace(file: str | Path) -> list[Event]:
    """Return the events of a trace. The first one begins at 0 s.

    file: JSON that `torch.profiler.profile().export_chrome_trace` or `write_chrome_trace` has written.

    Events of `write_chrome_trace` keep their lanes, kinds and phases. Of torch.profiler's these are returned: forward
    passes of DistributedDataParallel, operations of the backward pass, optimizer steps, and collectives. A rank's lane
    is "rank 0", and each thread in which gloo works has a lane of its own, such as "thread 1 of gloo, rank 0".
    Raises ValueError if the file has no such event.
    """
    trace = json.loads(Path(file).read_text())
    rows = sorted((row for row in trace["traceEvents"] if row["ph"] == "X"), key=lambda row: row["ts"])
    if "deviceProperties" in trace:  # torch.profiler's
        events = _of_profiler(rows, f"rank {trace.get('distributedInfo', {}).get('rank', 0)}")
    else:
        names = {row["tid"]: row["args"]["name"] for row in trace["traceEvents"] if row["name"] == "thread_name"}
        events = [_ours(row, names[row["tid"]]) for row in rows]
    if not events:
        raise ValueError(f"{file} has no passes of DistributedDataParallel, optimizer steps or collectives")
    first = events[0].start
    return [e._replace(start=e.start - first, end=e.end - first, issued=e.issued - first) for e in events]


def _of_profiler(rows: list[dict], rank: str) -> list[Event]:
    events, threads = [], dict[int, int]()
    for row in rows:
        backend = next((name for name in BACKENDS if row["name"].startswith(name)), "")
        phase = next((phase for name, phase in PHASES.items() if row["name"].startswith(name)), "")
        if backend:
            number = threads.setdefault(row["tid"], len(threads) + 1)
            lane, kind = f"thread {number} of {backend[:-1]}, {rank}", "copy"
        else:
            lane, kind = rank, "compute"
        if backend or phase:
            start, end = row["ts"] / 1e6, (row["ts"] + row["dur"]) / 1e6
            name = row["name"].removeprefix(backend).rpartition("::")[2].rpartition(": ")[2]
            events.append(Event(lane, name, kind, start, end, start, phase=phase))
    return events


def _ours(row: dict, lane: str) -> Event:
    start, end, known = row["ts"] / 1e6, (row["ts"] + row["dur"]) / 1e6, row["args"]
    return Event(
        lane, row["name"], row["cat"], start, end, start,
        known.get("bytes", 0), known.get("flops", 0), known.get("asked", ""), known.get("phase", ""),
    )  # fmt: skip
