"""A pipeline over MPI ranks against torch's own over gloo: the same stages, schedule and micro-batches in one run."""

from collections.abc import Iterator
from typing import NamedTuple

from mpcourse.course.bench.over_ranks import measured
from mpcourse.course.bench.record import Record

MICROBATCHES = 8
ALIKE = 0.03  # how far the stages' busy times may be apart in a step that is held against the formula for equal costs


class PipelineCase(NamedTuple):
    """schedule, of stages with `layers` layers of width x width each, on batches of `batch`. steps: of each run.

    m: micro-batches. ticks: seconds of a stage's forward, whatever the core's speed, and half those of its backward,
    instead of layers.
    """

    schedule: str
    layers: int
    width: int
    batch: int
    runs: int
    steps: int
    measures_bubble: bool = False
    ticks: float = 0.0
    m: int = MICROBATCHES

    def __str__(self) -> str:
        if self.ticks:
            return f"{self.schedule}, stages of {1e3 * self.ticks:g} and {2e3 * self.ticks:g} ms"
        if self.measures_bubble:
            return f"{self.schedule}, {self.layers} layers of {self.width} a stage, batch {self.batch}, m = {self.m}"
        return f"{self.schedule}, {self.layers} layers of {self.width} a stage, batch {self.batch}"


def pipeline(runs: int = 5, np: int = 2) -> Iterator[Record]:
    """Time steps (forward and backward) of an MLP, one stage a rank, one thread a rank, each rank on one core.

    Small layers show what a message costs, large ones that all time goes into computing. In each pair ours and torch's
    take turns step by step, so that a machine whose speed changes favours none. The bubble of large layers is held
    against a replay with what each stage's forward and backward took on average, and against the formula for equal
    stages. Cores that differ in speed make stages that differ; those that take their time by the clock are equal.
    """
    cases = [
        PipelineCase(name, layers, width, batch, runs, steps)
        for layers, width, batch, steps in ((2, 256, 128, 60), (4, 512, 128, 15))
        for name in ("gpipe", "1f1b")
    ]
    cases += [PipelineCase(name, 16, 512, 2048, runs, 5, True, m=m) for m in (2, 4, 8) for name in ("gpipe", "1f1b")]
    cases += [PipelineCase(name, 1, 8, 64, runs, 4, True, ticks=0.02) for name in ("gpipe", "1f1b")]
    for measurement in measured("mpcourse.course.bench.pipeline_ranks", cases, np, keep_memory=True):
        case = PipelineCase(*measurement["case"])
        yield from _bubbles(case, measurement, np) if case.measures_bubble else _speeds(case, measurement)


def _speeds(case: PipelineCase, measurement: dict) -> Iterator[Record]:
    for side, seconds in measurement["seconds"].items():
        yield Record(f"{case}: {side}", [case.batch / s for s in seconds], "examples/s")
    small = case.width < 512
    yield Record(f"{case}: ours / torch", measurement["ratios"], "times", 1.2 if small else None, at_least=True)
    yield Record(f"{case}: gradients differ by", [1e6 * measurement["difference"]], "millionths", 10)


def _bubbles(case: PipelineCase, measurement: dict, np: int) -> Iterator[Record]:
    formula = (np - 1) / (case.m + np - 1)
    bubbles = measurement["bubbles"]
    yield Record(f"{case}: bubble", [100 * b for b, _, _ in bubbles], "%")
    if case.ticks:
        yield Record(f"{case}: bubble / (p-1)/(m+p-1)", [b / formula for b, _, _ in bubbles], "times", 1.15)
        return
    of_costs = [b / planned for b, planned, _ in bubbles]
    yield Record(f"{case}: bubble / replay of measured F and B", of_costs, "times", 1.15)
    alike = [b / formula for b, _, apart in bubbles if apart <= ALIKE]
    share = f"in the {len(alike)} of {len(bubbles)} steps with stages alike within {100 * ALIKE:g} %"
    if alike:
        yield Record(f"{case}: bubble / (p-1)/(m+p-1) {share}", alike, "times", 1.15)
