"""All-reduce by hand against MPI's own and gloo's: the same numbers on the same ranks in one run."""

from collections.abc import Iterator
from typing import NamedTuple

from mpcourse.course.bench.over_ranks import measured
from mpcourse.course.bench.record import Record

# Bytes of float32, and how many sums make one run.
SIZES = ((4_000, 200), (40_000, 100), (400_000, 40), (4_000_000, 12), (40_000_000, 4))
SIDES = ("allreduce", "ring", "MPI", "gloo")


class AllreduceCase(NamedTuple):
    """nbytes: of what is summed, float32. rounds: sums that make one run."""

    nbytes: int
    runs: int
    rounds: int


def allreduce(runs: int = 5, np: int = 2) -> Iterator[Record]:
    """Measure sums of random float32 numbers over np ranks: one thread a rank, and one core where there are enough.

    In each run all sides take turns, with some sums in a row. Each is checked against one in float64. The limit is
    what copying takes: all ranks at once copy, in their own memory, as many bytes as the ring makes each of them send.
    """
    cases = [AllreduceCase(nbytes, runs, rounds) for nbytes, rounds in SIZES]
    for measurement in measured("mpcourse.course.bench.allreduce_ranks", cases, np):
        yield from _records(AllreduceCase(*measurement["case"]), measurement, np)


def _records(case: AllreduceCase, measurement: dict, np: int) -> Iterator[Record]:
    size, seconds = _size(case.nbytes), measurement["seconds"]
    for side in (*SIDES, "copying"):
        yield Record(f"{size}: {side}", [1e3 * s for s in seconds[side]], "ms")

    def faster(side: str) -> list[float]:
        """Return by how much the better of ours beats a side, run by run."""
        ours = zip(seconds["allreduce"], seconds["ring"], strict=True)
        return [theirs / min(pair) for pair, theirs in zip(ours, seconds[side], strict=True)]

    promises = {40_000_000: (2.0, 3.0), 4_000_000: (1.0, 1.0)}.get(case.nbytes, (None, None))
    for side, promise in zip(("MPI", "gloo"), promises, strict=True):
        yield Record(f"{size}: ours against {side}'s", faster(side), "times as fast", promise, at_least=True)
    best = [min(row) for row in zip(*(seconds[side] for side in SIDES), strict=True)]
    share = [b / ours for b, ours in zip(best, seconds["allreduce"], strict=True)]
    yield Record(f"{size}: allreduce, of the best", share, "times as fast", 0.5, at_least=True)
    ring = [s / limit for s, limit in zip(seconds["ring"], seconds["copying"], strict=True)]
    yield Record(f"{size}: ring over copying", ring, "times as long")
    yield Record(f"{size}: sums differ by", [1e6 * measurement["difference"]], "millionths", 1)


def _size(nbytes: int) -> str:
    return f"{nbytes // 10**6} MB" if nbytes >= 10**6 else f"{nbytes // 1000} kB"
