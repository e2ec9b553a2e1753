"""ZeRO by hand against torch's ZeroRedundancyOptimizer and FSDP2, and against data parallelism by hand."""

import os
from collections.abc import Iterator
from typing import NamedTuple

from mpcourse.course.bench.over_ranks import measured
from mpcourse.course.bench.record import Record
from mpcourse.zero.model_states import held

OURS = ("data parallel", "stage 1", "stage 2", "stage 3")  # the number of a stage is its place
SIDES = (*OURS, "ZeroRedundancyOptimizer", "FSDP2")
# Examples/s of one side over those of another, and what the course promises.
PAIRS = (
    ("stage 1", "data parallel", 0.85),
    ("stage 1", "ZeroRedundancyOptimizer", None),
    ("stage 3", "FSDP2", 1.2),
)
ADAM = {"weight": 4, "gradient": 4, "state": 8}  # bytes a parameter, all in float32
OVER = 1.1  # times what closed forms say a rank holds between steps
CLOSE = 1e-10  # of float64, after a few steps


class ZeroCase(NamedTuple):
    """widths: of the MLP's input, hidden layers and output. batch: examples of each rank. steps: that make one run.

    side: whose memory is measured, in processes of its own; "": speed of all is, and whether they are equal.
    """

    widths: tuple[int, ...]
    batch: int
    steps: int
    runs: int
    side: str = ""

    @property
    def parameters(self) -> int:
        return sum(n * m + m for n, m in zip(self.widths, self.widths[1:], strict=False))

    def __str__(self) -> str:
        return f"MLP of {self.parameters / 1e6:.3g} M, Adam"


CASE = ZeroCase((*[1024] * 11, 10), 128, 4, 5)


def zero(runs: int = 5, np: int = 2) -> Iterator[Record]:
    """Training an MLP of 10.5 M parameters with Adam, float32, on np ranks with one thread and one core each.

    In each run all sides take turns, with some steps in a row; random data. Ours are data parallelism ("bucketed"),
    `ShardedOptimizer`, `OverlappedGradients` and `PrefetchedParameters`; theirs, over gloo, ZeroRedundancyOptimizer
    around DDP, and `fully_shard` of each layer. Before that each makes a few steps in float64, and the parameters of
    all are compared.
    Memory is that of a rank's process, on Linux, each side in processes of its own, which give back what they free:
    what there is after a step more than before the model, beside `model_states.held`; and at most within a step, with
    activations and messages.
    """
    case = CASE._replace(runs=runs)
    (speed,) = measured("mpcourse.course.bench.zero_ranks", [case], np, keep_memory=True)
    yield from _speeds(case, speed, np)
    if os.path.exists("/proc/self/clear_refs"):
        yield from _memory(case, {side: _memory_of(case, side, np) for side in SIDES}, np)


def _memory_of(case: ZeroCase, side: str, np: int) -> dict:
    return measured("mpcourse.course.bench.zero_ranks", [case._replace(side=side)], np, give_back=True)[0]


def _speeds(case: ZeroCase, measurement: dict, np: int) -> Iterator[Record]:
    seconds = measurement["seconds"]
    for side in SIDES:
        yield Record(f"{case}: {side}", [np * case.batch * case.steps / s for s in seconds[side]], "examples/s")
    for ours, other, promise in PAIRS:
        ratios = [theirs / taken for taken, theirs in zip(seconds[ours], seconds[other], strict=True)]
        yield Record(f"{case}: {ours} / {other}", ratios, "times", promise, at_least=True)
    yield Record(f"{case}: float64 parameters differ by", [measurement["difference"]], "relative", CLOSE)


def _memory(case: ZeroCase, nbytes_of: dict[str, dict], np: int) -> Iterator[Record]:
    """Yield memory after a step, and at its peak.

    nbytes_of: of each side bytes, "held" after a step, and at "peak" within one; the most of all ranks.
    """
    between, peak = f"{case}, memory after a step", f"{case}, peak memory of a step"
    for side in SIDES:
        yield Record(f"{between}: {side}", [nbytes_of[side]["held"] / 1e6], "MB")
    for stage, side in enumerate(OURS):
        ratio = nbytes_of[side]["held"] / sum(held(case.parameters, stage, np, **ADAM).values())
        yield Record(f"{between}: {side} / closed form", [ratio], "times", OVER if stage else None)
    for side in SIDES:
        yield Record(f"{peak}: {side}", [nbytes_of[side]["peak"] / 1e6], "MB")
