"""A mixture of experts over ranks by hand, against PyTorch's all-to-alls."""

from collections.abc import Iterator
from typing import NamedTuple

from mpcourse.course.bench.over_ranks import measured
from mpcourse.course.bench.record import Record

SIDES = ("ours", "torch")
CLOSE = 1e-10  # of float64


class ExpertsCase(NamedTuple):
    """tokens: of a rank. width, hidden: of an expert. k: experts of a token. steps, runs: of forward and backward.

    promise: how many times as fast as torch's our layer is; None: nothing is promised.
    """

    tokens: int
    width: int
    hidden: int
    k: int
    steps: int
    runs: int
    promise: float | None = None

    def __str__(self) -> str:
        return f"{self.tokens} tokens a rank, width {self.width}, k = {self.k}"


EXPERTS = 8
CASES = (
    ExpertsCase(128, 64, 256, 1, 20, 5, 1.5),
    ExpertsCase(1024, 128, 512, 2, 5, 5),
    ExpertsCase(2048, 512, 2048, 2, 1, 5),  # almost all of the time goes to the experts, which are the same
)


def experts(runs: int = 5, np: int = 2) -> Iterator[Record]:
    """Time a layer of 8 experts, forward and backward, in float32, on np ranks with one thread and core each.

    In each run both sides take turns; random data. Ours is `Mixture` of `mpcourse.experts`, dropless, over MPI. Theirs
    is written as one writes it in PyTorch: `all_to_all_single_autograd` and `all_to_all_single` over gloo, with the
    same router and the same experts.
    """
    cases = [case._replace(runs=runs) for case in CASES]
    for case, found in zip(cases, measured("mpcourse.course.bench.experts_ranks", cases, np), strict=True):
        seconds = found["seconds"]
        for side in SIDES:
            yield Record(f"{case}: {side}", [1e3 * s / case.steps for s in seconds[side]], "ms")
        ratios = [b / a for a, b in zip(seconds["ours"], seconds["torch"], strict=True)]
        yield Record(f"{case}: ours / torch", ratios, "times", case.promise, at_least=True)
        yield Record(f"{case}: float64 results differ by", [found["difference"]], "absolute", CLOSE)
