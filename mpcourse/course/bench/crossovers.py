"""Where one all-reduce by hand overtakes another: by formula from fitted costs, and measured."""

import statistics
from collections.abc import Iterator, Sequence

from mpcourse.collectives import ALGORITHMS
from mpcourse.collectives.cost import Cost, best
from mpcourse.course.bench.over_ranks import measured
from mpcourse.course.bench.record import Record

SIZES = tuple(4 << 2 * i for i in range(1, 12))  # 16 bytes to 16 MiB
OURS = tuple(ALGORITHMS)
SIDES = (*OURS, "allreduce", "MPI", "gloo")


def crossovers(runs: int = 5, np: int = 2) -> Iterator[Record]:
    """Measure alpha, beta and gamma of np ranks; then compare each algorithm's time with its formula, size by size.

    In each run all sides take turns, with some sums in a row, on random float32 numbers. Each is checked by its
    first number.
    """
    (measurement,) = measured("mpcourse.course.bench.crossovers_ranks", [[SIZES, runs]], np)
    cost = Cost(*measurement["cost"])
    yield Record("alpha: a message", [1e6 * cost.alpha], "us")
    yield Record("1/beta: sending", [1e-9 / cost.beta], "GB/s")
    yield Record("1/gamma: adding", [1e-9 / cost.gamma], "GB/s")
    for nbytes, seconds in zip(SIZES, measurement["seconds"], strict=True):
        for side in SIDES:
            yield Record(f"{nbytes} B: {side}", [1e6 * s for s in seconds[side]], "us")
    for size, name in overtakings(SIZES, measurement["seconds"]):
        yield Record(f"measured: {name} is best from", [size], "B")
    for size, name in _changes([(n, best(np, n, cost, OURS)) for n in SIZES]):
        yield Record(f"by formula: {name} is best from", [size], "B")


def overtakings(sizes: Sequence[int], seconds: Sequence[dict[str, list[float]]]) -> list[tuple[int, str]]:
    """Return from which size on which of ours was the fastest, by medians: (16, "doubling"), (65536, "ring")."""
    medians = [{side: statistics.median(row[side]) for side in OURS} for row in seconds]
    return _changes([(n, min(row, key=row.__getitem__)) for n, row in zip(sizes, medians, strict=True)])


def _changes(rows: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    return [row for before, row in zip([(0, ""), *rows], rows, strict=False) if before[1] != row[1]]
