"""Ring attention by hand, against the ring of torch's context parallelism."""

from collections.abc import Iterator
from typing import NamedTuple

from mpcourse.course.bench.over_ranks import measured
from mpcourse.course.bench.record import Record

OURS, THEIRS = ("contiguous", "zigzag"), ("torch: contiguous", "torch: zigzag")
OTHERS = ("gather", "ulysses")  # ours, both zigzag
SIDES = (*OURS, *THEIRS, *OTHERS)
CLOSE = 1e-10  # of float64


class ContextCase(NamedTuple):
    """length: tokens of the whole sequence. heads, head: of attention. steps, runs: of attention, forward and backward.

    promise: how many times as fast as torch's our rings are; None: nothing is promised.
    """

    length: int
    heads: int
    head: int
    steps: int
    runs: int
    promise: float | None = None

    def __str__(self) -> str:
        return f"{self.length} tokens, {self.heads} heads of {self.head}"


CASES = (
    ContextCase(256, 4, 32, 20, 5, 1.3),
    ContextCase(1024, 8, 64, 5, 5),
    ContextCase(4096, 8, 64, 1, 5),  # almost all of the time goes to the kernel, which is the same on both sides
)


def context(runs: int = 5, np: int = 2) -> Iterator[Record]:
    """Causal attention, forward and backward, float32, on np ranks with one thread and one core each.

    In each run all sides take turns; random data. Ours is `ring_attention` of `mpcourse.context_parallel`, contiguous
    and zigzag. Theirs, over gloo, is `_templated_ring_attention` of torch.distributed.tensor.experimental and its
    backward, without and with load balancing: what torch's context_parallel calls on GPUs. Both call torch's flash
    kernel for CPUs. The share of the kernel is that of torch's contiguous ring on the last rank, as torch's profiler
    counts it.
    """
    cases = [case._replace(runs=runs) for case in CASES]
    for case, found in zip(cases, measured("mpcourse.course.bench.context_ranks", cases, np), strict=True):
        seconds = found["seconds"]
        for side in SIDES:
            yield Record(f"{case}: {side}", [1e3 * s / case.steps for s in seconds[side]], "ms")
        for ours, theirs in zip(OURS, THEIRS, strict=True):
            ratios = [b / a for a, b in zip(seconds[ours], seconds[theirs], strict=True)]
            yield Record(f"{case}: {ours} / {theirs}", ratios, "times", case.promise, at_least=True)
        yield Record(f"{case}: kernel in torch's time", [100 * found["kernel"]], "%")
        yield Record(f"{case}: float64 results differ by", [found["difference"]], "absolute", CLOSE)
