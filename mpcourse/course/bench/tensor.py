"""A transformer's layers cut over ranks by hand, against torch's `parallelize_module`."""

from collections.abc import Iterator
from typing import NamedTuple

from mpcourse.course.bench.over_ranks import measured
from mpcourse.course.bench.record import Record

OURS, THEIRS = ("tensor", "sequence"), ("torch: tensor", "torch: sequence")
SIDES = (*OURS, *THEIRS)
PROMISED = 1.3  # times as fast as torch
CLOSE = 1e-10  # of float64, after a few steps


class TensorCase(NamedTuple):
    """length: tokens of a sequence. batch: sequences. width, heads: of a layer. layers: their number. steps: of a run.

    promise: how many times as fast as torch's our layers are; None: nothing is promised.
    """

    length: int
    batch: int
    width: int
    heads: int
    layers: int
    steps: int
    runs: int
    promise: float | None = None

    def __str__(self) -> str:
        return f"{self.layers} layers of width {self.width}, {self.length * self.batch} tokens"


CASES = (
    TensorCase(64, 4, 64, 4, 4, 10, 5, PROMISED),  # the course's small GPT
    TensorCase(128, 4, 256, 4, 2, 5, 5, PROMISED),
    TensorCase(128, 4, 768, 12, 2, 1, 5),  # products take 80 % of torch's step, and are the same on both sides
)


def tensor(runs: int = 5, np: int = 2) -> Iterator[Record]:
    """Training steps of a transformer's layers, float32, on np ranks with one thread and one core each.

    In each run all sides take turns; random data. Ours are layers of `mpcourse.tensor_parallel` without and with
    sequence parallelism; theirs, over gloo, the same layers under `parallelize_module` with ColwiseParallel and
    RowwiseParallel, without and with SequenceParallel. A step is forward, backward and SGD. Before that, each makes a
    few steps in float64, and the parameters of all are compared.
    The share of products is that of a step of torch's tensor parallelism on rank 0, as torch's profiler counts it.
    """
    cases = [case._replace(runs=runs) for case in CASES]
    for case, found in zip(cases, measured("mpcourse.course.bench.tensor_ranks", cases, np), strict=True):
        seconds = found["seconds"]
        for side in SIDES:
            yield Record(f"{case}: {side}", [1e3 * s / case.steps for s in seconds[side]], "ms a step")
        for ours, theirs in zip(OURS, THEIRS, strict=True):
            ratios = [b / a for a, b in zip(seconds[ours], seconds[theirs], strict=True)]
            yield Record(f"{case}: {ours} / {theirs}", ratios, "times", case.promise, at_least=True)
        yield Record(f"{case}: products in torch's step", [100 * found["products"]], "%")
        yield Record(f"{case}: float64 parameters differ by", [found["difference"]], "relative", CLOSE)
