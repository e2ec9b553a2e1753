"""Data parallelism by hand against torch's DistributedDataParallel, and against processes that never talk."""

from collections.abc import Iterator
from typing import NamedTuple

from mpcourse.course.bench.over_ranks import measured
from mpcourse.course.bench.record import Record

SIDES = ("alone", "in step", "flat", "bucketed", "fused", "double buffering", "DDP")
# Examples of a rank's batch, steps that make one run, how much faster than DDP the course promises to be, and the side
# that it holds against the ceiling. Only the MLP has weights that are large enough for gradient fusion.
MODELS = {
    "mlp": (100, 20, 1.3, "fused"),
    "conv": (100, 8, 1.05, "bucketed"),
    "transformer": (32, 16, 1.05, "bucketed"),
}
CEILING = 0.9


class DataParallelCase(NamedTuple):
    """model: one of MODELS. batch: examples of each rank. steps: training steps that make one run."""

    model: str
    batch: int
    steps: int
    runs: int


def data_parallel(runs: int = 15, np: int = 2) -> Iterator[Record]:
    """Training steps on np ranks, one thread a rank, each rank on one core where there are enough; random images.

    In each run all sides take turns, with some steps in a row. Ours with buckets is held against DDP on gloo, whose
    gradients are views of its buckets, too; and against the ceiling, ranks that train alone and never talk. The MLP is
    held against that "fused": its large layers also write their gradients into the buckets (`fuse_weight_gradients`).
    Those "in step" only wait for each other in each step: what they lose is lost by every sum over ranks, however fast.
    After all runs the parameters of ours and of DDP are compared: both have made the same steps.
    """
    cases = [DataParallelCase(model, batch, steps, runs) for model, (batch, steps, *_) in MODELS.items()]
    for measurement in measured("mpcourse.course.bench.data_parallel_ranks", cases, np, keep_memory=True):
        yield from _records(DataParallelCase(*measurement["case"]), measurement, np)


def sides_of(model: str) -> list[str]:
    """Return the sides that are measured for this model: all of SIDES that differ."""
    return [side for side in SIDES if side != "fused" or MODELS[model][3] == side]


def _records(case: DataParallelCase, measurement: dict, np: int) -> Iterator[Record]:
    seconds, sides = measurement["seconds"], sides_of(case.model)
    for side in sides:
        speeds = [np * case.batch * case.steps / s for s in seconds[side]]
        yield Record(f"{case.model}: {side}", speeds, "examples/s")
    for side in sides[2:-1]:
        promise = MODELS[case.model][2] if side == "bucketed" else None
        ratios = [theirs / ours for ours, theirs in zip(seconds[side], seconds["DDP"], strict=True)]
        yield Record(f"{case.model}: {side} / DDP", ratios, "times", promise, at_least=True)
    for side in sides[1:]:
        promise = CEILING if side == MODELS[case.model][3] else None
        ratios = [alone / taken for taken, alone in zip(seconds[side], seconds["alone"], strict=True)]
        yield Record(f"{case.model}: {side} / alone", ratios, "times", promise, at_least=True)
    yield Record(f"{case.model}: parameters differ by", [1e6 * measurement["difference"]], "millionths", 100)
