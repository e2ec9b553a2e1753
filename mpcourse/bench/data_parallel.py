"""Data parallelism by hand against torch's DistributedDataParallel, and against processes that never talk."""

from collections.abc import Iterator
from typing import NamedTuple

from mpcourse.bench.over_ranks import measured
from mpcourse.bench.record import Record
from mpcourse.errors import UserError

SIDES = ("alone", "in step", "flat", "bucketed", "in place", "double buffering", "DDP")
OURS = SIDES[2:-1]
# Examples of a rank's batch, steps that make one run, and how much faster than DDP the course promises to be.
MODELS = {"mlp": (100, 20, 1.3), "conv": (100, 8, 1.05), "transformer": (32, 16, 1.05)}
CEILING = 0.9


class Case(NamedTuple):
    """model: one of MODELS. batch: examples of each rank. steps: training steps that make one run."""

    model: str
    batch: int
    steps: int
    runs: int


def data_parallel(runs: int = 15, np: int = 2) -> Iterator[Record]:
    """Training steps on np ranks, one thread a rank, each rank on one core where there are enough; random images.

    In each run all sides take turns, with some steps in a row. Ours with buckets is held against DDP on gloo, whose
    gradients are views of its buckets, too; and ours "in place", whose large linear layers also write their gradients
    into the buckets (`write_in_place`), against the ceiling, ranks that train alone and never talk. Those "in step"
    only wait for each other in each step: what they lose is lost by every sum over ranks, however fast. After all runs
    the parameters of ours and of DDP are compared: both have made the same steps.
    """
    if np < 2:
        raise UserError(f"--np {np}: data parallelism needs 2 ranks or more")
    cases = [Case(model, batch, steps, runs) for model, (batch, steps, _) in MODELS.items()]
    for found in measured("mpcourse.bench.data_parallel_ranks", cases, np, keep_memory=True):
        yield from _records(Case(*found["case"]), found, np)


def _records(case: Case, found: dict, np: int) -> Iterator[Record]:
    seconds = found["seconds"]
    for side in SIDES:
        speeds = [np * case.batch * case.steps / s for s in seconds[side]]
        yield Record(f"{case.model}: {side}", speeds, "examples/s")
    for side in OURS:
        promise = MODELS[case.model][2] if side == "bucketed" else None
        ratios = [theirs / ours for ours, theirs in zip(seconds[side], seconds["DDP"], strict=True)]
        yield Record(f"{case.model}: {side} / DDP", ratios, "times", promise, at_least=True)
    for side in SIDES[1:]:
        promise = CEILING if side == "in place" else None
        ratios = [alone / taken for taken, alone in zip(seconds[side], seconds["alone"], strict=True)]
        yield Record(f"{case.model}: {side} / alone", ratios, "times", promise, at_least=True)
    yield Record(f"{case.model}: parameters differ by", [1e6 * found["difference"]], "millionths", 100)
