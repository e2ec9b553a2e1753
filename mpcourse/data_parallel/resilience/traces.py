"""Where a step's time goes, from the profiler traces of several ranks: computing, messages, waiting for whom, host.

`torch.profiler` writes one file for each rank (`export_chrome_trace`). All times here are in seconds.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from mpcourse.common.errors import UserError

Spans = list[tuple[float, float]]  # (begin, end), in order, without overlaps
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")  # categories of what runs on a GPU
NOT_COMPUTING = ("c10d::", "gloo:", "nccl:", "record_param_comms", "ProfilerStep#")
SHORT_GAP = 100e-6  # between two kernels; longer ones have another cause than the time of a launch


@dataclass(frozen=True)
class Collective:
    """A collective on one rank: the kernel of NCCL, or what the thread of gloo does.

    name: as the profiler has it.
    begin, end: seconds. It begins when this rank is ready, and cannot end before all ranks are.
    """

    name: str
    begin: float
    end: float


@dataclass
class RankTrace:
    """What one rank did.

    rank: its number.
    on_gpu: whether its kernels were recorded; otherwise operations on the CPU.
    begin, end: of the recorded steps, by this rank's clock. On a GPU: of their kernels, which run after their launch.
    steps: their number; 0 if the trace has no steps. Then everything counts.
    host: the machine's name, if the trace has it, else "".
    computing: when it computed, also behind messages.
    collectives: in the order in which they began.
    """

    rank: int
    on_gpu: bool
    begin: float
    end: float
    steps: int
    host: str
    computing: Spans
    collectives: list[Collective]


def read_rank(file: str | Path, number: int = 0) -> RankTrace:
    """Read a trace of torch.profiler.

    file: JSON, or .json.gz.
    number: the rank, where the trace does not say it.
    Raises UserError for a file that is none, or that has nothing to look at.
    """
    try:
        raw = Path(file).read_bytes()
        trace = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
        rows = [row for row in trace["traceEvents"] if row.get("ph") == "X" and "dur" in row]
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise UserError(f"{file} is no trace of torch.profiler: {' '.join(str(error).split())}") from None
    base = trace.get("baseTimeNanoseconds", 0) / 1e9
    events = [(str(row.get("cat", "")).lower(), row["name"], base + row["ts"] / 1e6, row["dur"] / 1e6) for row in rows]
    on_gpu = any(kind in DEVICE for kind, *_ in events)
    # CUDA traces name each step once more, for the GPU, in a category of its own.
    named = [event for event in events if event[1].startswith("ProfilerStep#") and event[0] != "gpu_user_annotation"]
    steps = [(begin, begin + seconds) for _, _, begin, seconds in named]
    computing, collectives = [], []
    for kind, name, begin, seconds in events:
        if on_gpu and kind in DEVICE and "nccl" in name.lower():
            collectives.append(Collective(name.partition("(")[0], begin, begin + seconds))
        elif on_gpu and kind in DEVICE:
            computing.append((begin, begin + seconds))
        elif name.startswith("gloo:") and kind != "gpu_user_annotation":
            collectives.append(Collective(name, begin, begin + seconds))
        elif not on_gpu and kind == "cpu_op" and not name.startswith(NOT_COMPUTING):
            computing.append((begin, begin + seconds))
    everything = steps or [*computing, *((c.begin, c.end) for c in collectives)]
    if not everything:
        raise UserError(f"{file} has no operations: was the profiler on during a step?")
    begin, end = min(b for b, _ in everything), max(e for _, e in everything)
    if steps and on_gpu:
        begin, end = _on_the_gpu(rows, base, begin, end)
    rank = trace.get("distributedInfo", {}).get("rank", number)
    inside = sorted((c for c in collectives if c.begin < end and c.end > begin), key=lambda c: c.begin)
    host = str(trace.get("host_name", ""))
    return RankTrace(rank, on_gpu, begin, end, len(set(steps)), host, within(merged(computing), begin, end), inside)


def _on_the_gpu(rows: Sequence[dict], base: float, begin: float, end: float) -> tuple[float, float]:
    """Return when the GPU began and ended the steps that the host launched from `begin` to `end`.

    A host that does not wait for the GPU is ahead of it, by several steps in a fast program. A kernel is then known by
    the call that launched it, which has the same number in the trace.
    """
    spans = [(row.get("args", {}).get("correlation"), row) for row in rows]
    launched = {number: base + row["ts"] / 1e6 for number, row in spans if str(row.get("cat", "")).startswith("cuda_")}
    ours: Spans = []
    others: Spans = []
    for number, row in spans:
        if row.get("cat") in DEVICE:
            at, starts = launched.get(number, -1.0), base + row["ts"] / 1e6
            (ours if begin <= at <= end else others).append((starts, starts + row["dur"] / 1e6))
    if not ours:
        return begin, end
    first = min(ours)[0]
    before = [to for at, to in others if at < first]
    return max([begin, *before]), max(end, *(to for _, to in ours))


# -- spans of time --


def merged(spans: Iterable[tuple[float, float]]) -> Spans:
    """Return spans in order and without overlaps, for spans in any order.

    spans: (begin, end).
    """
    found: Spans = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > begin:
            found.append((begin, end))
    return found


def within(spans: Spans, begin: float, end: float) -> Spans:
    """Return the parts of spans that lie between two times.

    spans: merged.
    begin, end: the two times.
    """
    return [(max(b, begin), min(e, end)) for b, e in spans if e > begin and b < end]


def without(spans: Spans, others: Spans) -> Spans:
    """Return the parts of spans that no other span covers.

    spans, others: each merged.
    """
    left: Spans = []
    at = 0
    for begin, end in spans:
        while at < len(others) and others[at][1] <= begin:
            at += 1
        now, i = begin, at
        while i < len(others) and others[i][0] < end:
            if others[i][0] > now:
                left.append((now, others[i][0]))
            now, i = max(now, others[i][1]), i + 1
        if now < end:
            left.append((now, end))
    return left


def seconds(spans: Spans) -> float:
    """Return the length of spans together.

    spans: merged.
    """
    return sum(end - begin for begin, end in spans)


# -- several ranks --


@dataclass
class Share:
    """Where one rank's time went, in seconds a step. Computing, transfer, waiting and idle add up to a step.

    rank: its number.
    computing: also behind messages.
    transfer: messages that nothing hides, when all ranks take part.
    waiting: for ranks that come later to a collective, while nothing is computed.
    idle: neither computing nor in a collective: the host has given it nothing to do.
    hidden: messages behind computing.
    launch: part of `idle`, in gaps between kernels of less than 0.1 ms: the host launches too slowly.
    clock: seconds by which this rank's clock was ahead of the first one's, and was set back.
    """

    rank: int
    computing: float = 0.0
    transfer: float = 0.0
    waiting: float = 0.0
    idle: float = 0.0
    hidden: float = 0.0
    launch: float = 0.0
    clock: float = 0.0

    @property
    def step(self) -> float:
        """Seconds of a step."""
        return self.computing + self.transfer + self.waiting + self.idle


@dataclass
class Explained:
    """Where the time of all ranks went.

    shares: of each rank, in the order of ranks.
    waits: rank -> seconds a step for which all others together wait for it.
    matched: collectives that were found on all ranks; only with these is it known who waits.
    steps: their number; 0: the traces name none, and all is one.
    on_gpu: whether kernels were recorded.
    """

    shares: list[Share]
    waits: dict[int, float] = field(default_factory=dict)
    matched: int = 0
    steps: int = 0
    on_gpu: bool = False


def explain(traces: Sequence[RankTrace]) -> Explained:
    """Say where the time of a step goes on each rank.

    traces: of different ranks, of the same steps.

    Collectives are matched by their names and their order. A rank waits in a collective from when it comes until the
    last rank has come. No rank leaves an all-reduce before all ranks have come, so they leave it at about the same
    time. This sets the clocks of different hosts.
    Raises UserError for no trace, for two of one rank, and for traces of CPUs and GPUs together.
    """
    traces = sorted(traces, key=lambda t: t.rank)
    ranks = [t.rank for t in traces]
    if not traces or len(set(ranks)) < len(ranks):
        raise UserError(f"one trace of each rank is needed: got ranks {ranks}")
    if len({t.on_gpu for t in traces}) > 1:
        raise UserError("some traces have kernels of GPUs, and others have none: record all ranks alike")
    groups = _matched(traces)
    one_clock = not groups or len({t.host or t.rank for t in traces}) == 1
    clocks = [0.0 if one_clock else median(group[i].end - group[0].end for group in groups) for i in range(len(traces))]
    comes: list[dict[Collective, float]] = [{} for _ in traces]  # by this rank's clock, when the last rank has come
    late: dict[int, list[tuple[int, float, float]]] = defaultdict(list)
    for group in groups:
        begins = [c.begin - clock for c, clock in zip(group, clocks, strict=True)]
        last = max(range(len(traces)), key=lambda i: begins[i])
        for i, c in enumerate(group):
            comes[i][c] = min(max(begins[last] + clocks[i], c.begin), c.end)
            late[i].append((traces[last].rank, c.begin, comes[i][c]))
    steps = max(1, min(t.steps for t in traces))
    shares: list[Share] = []
    waits: dict[int, float] = defaultdict(float)
    for i, trace in enumerate(traces):
        talking = merged((c.begin, c.end) for c in trace.collectives)
        talking = within(talking, trace.begin, trace.end)
        exposed = without(talking, trace.computing)
        waiting = within(merged((c.begin, at) for c, at in comes[i].items()), trace.begin, trace.end)
        idle = without(without([(trace.begin, trace.end)], trace.computing), talking)
        waited = seconds(exposed) - seconds(without(exposed, waiting))
        share = Share(trace.rank, clock=clocks[i])
        share.computing, share.idle = seconds(trace.computing), seconds(idle)
        share.hidden = seconds(talking) - seconds(exposed)
        share.waiting, share.transfer = waited, seconds(exposed) - waited
        share.launch = seconds([gap for gap in idle if gap[1] - gap[0] < SHORT_GAP]) if trace.on_gpu else 0.0
        for name in ("computing", "transfer", "waiting", "idle", "hidden", "launch"):
            setattr(share, name, getattr(share, name) / steps)
        shares.append(share)
        for rank in {rank for rank, *_ in late[i]} - {trace.rank}:
            spans = merged((b, e) for r, b, e in late[i] if r == rank)
            waits[rank] += (seconds(exposed) - seconds(without(exposed, spans))) / steps
    return Explained(shares, dict(waits), len(groups), min(t.steps for t in traces), traces[0].on_gpu)


def _matched(traces: Sequence[RankTrace]) -> list[list[Collective]]:
    """Return, for each collective that all ranks have, what it is on each of them."""
    by_name: list[dict[str, list[Collective]]] = [defaultdict(list) for _ in traces]
    for found, trace in zip(by_name, traces, strict=True):
        for c in trace.collectives:
            found[c.name].append(c)
    groups = []
    for name, first in by_name[0].items():
        if all(len(found[name]) == len(first) for found in by_name):
            groups += [list(group) for group in zip(*(found[name] for found in by_name), strict=True)]
    return groups
