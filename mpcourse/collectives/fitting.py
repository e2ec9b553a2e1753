"""alpha, beta and gamma of the current ranks: from a ping-pong, from adding, and from a sweep of sums."""

import statistics
from collections.abc import Callable, Sequence

import numpy as np

from mpcourse.collectives.cost import FORMULAS, Cost
from mpcourse.collectives.doubling import recursive_doubling_allreduce
from mpcourse.collectives.ring import ring_allreduce
from mpcourse.common.comm import Comm
from mpcourse.virtual import mpi_of

SIZES = (1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 22)  # bytes
LONG = 1 << 18  # bytes of a message whose time is far longer than alpha
UNITS = (Cost(1.0, 0.0, 0.0), Cost(0.0, 1.0, 0.0), Cost(0.0, 0.0, 1.0))

SUMS = {"doubling": recursive_doubling_allreduce, "ring": ring_allreduce}

Row = tuple[Sequence[float], float]  # how many alphas, betas and gammas a measurement takes, and how many seconds


def fit(comm: Comm, sizes: Sequence[int] = SIZES, runs: int = 12) -> Cost:
    """Measure alpha, beta and gamma of the formulas. All ranks call it, and get the same values.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    sizes: of messages and sums, in bytes, at least 8.
    runs: measurements of each size; their median is used.

    It measures a ping-pong of long messages between ranks 0 and 1, the addition of float64 elements, and sums over all
    ranks by recursive doubling and by the ring. Short messages of a ping-pong are left out, because they do not show
    what an algorithm does between its messages, nor that ranks share a core; in sums, alpha holds all of that. The
    values with the least squares of relative errors are returned. Virtual ranks are measured by their own clock, on
    which adding takes no time.
    Raises ValueError for fewer than 2 ranks.
    """
    if comm.size < 2:
        raise ValueError("a message needs two ranks: start this with -np 2 or more")
    clock, tick = mpi_of(comm).Wtime, mpi_of(comm).Wtick()
    rows: list[Row] = [((1.0, n, 0.0), _ping_pong(comm, n, runs, clock)) for n in sizes if n >= LONG]
    rows += [((0.0, 0.0, n), _adding(n, runs, clock, tick)) for n in sizes]
    for name in SUMS:
        for n in sizes:
            many = runs * (8 if n < LONG else 1)  # short ones take little time, and vary more
            rows.append(([FORMULAS[name](comm.size, n, u) for u in UNITS], _sum(comm, name, n, many, clock)))
    return comm.bcast(_solved(rows) if comm.rank == 0 else None)


def _solved(rows: list[Row]) -> Cost:
    """Return the values that explain `rows` best; none is negative."""
    used = [i for i in range(3) if not any(row[i] and not seconds for row, seconds in rows)]  # others are 0
    rows = [row for row in rows if row[1]]
    matrix = np.array([row for row, _ in rows]) / np.array([[seconds] for _, seconds in rows])
    while True:
        solution = np.linalg.lstsq(matrix[:, used], np.ones(len(rows)), rcond=None)[0]
        if (solution >= 0).all():
            values = dict(zip(used, map(float, solution), strict=True))
            return Cost(*(values.get(i, 0.0) for i in range(3)))
        used = [i for i, value in zip(used, solution, strict=True) if value >= 0]


def _ping_pong(comm: Comm, nbytes: int, runs: int, clock: Callable[[], float]) -> float:
    """Return the seconds of one message, one way, on rank 0, and 0 on others."""
    data, taken = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8), []
    comm.Barrier()
    for _ in range(runs + 2 if comm.rank < 2 else 0):
        begin = clock()
        if comm.rank == 0:
            comm.Send(data, 1)
            comm.Recv(data, 1)
        else:
            comm.Recv(data, 0)
            comm.Send(data, 0)
        taken.append((clock() - begin) / 2)
    comm.Barrier()
    return statistics.median(taken[2:]) if comm.rank == 0 else 0.0


def _adding(nbytes: int, runs: int, clock: Callable[[], float], tick: float) -> float:
    """Return the seconds of adding, or 0 where the clock has not moved by a tick, as on virtual ranks."""
    x, y = (np.random.default_rng(seed).standard_normal(nbytes // 8) for seed in (0, 1))
    taken = []
    for _ in range(runs):
        begin = clock()
        x += y
        taken.append(clock() - begin)
    seconds = statistics.median(taken)
    return seconds if seconds > tick else 0.0


def _sum(comm: Comm, name: str, nbytes: int, runs: int, clock: Callable[[], float]) -> float:
    """Return the seconds of a sum over all ranks, until the last rank has it."""
    given = np.random.default_rng(comm.rank).standard_normal(nbytes // 8)
    x, taken = np.empty_like(given), np.empty(runs + 2)
    for i in range(runs + 2):
        x[:] = given
        comm.Barrier()
        begin = clock()
        SUMS[name](comm, x)
        taken[i] = clock() - begin
    comm.Allreduce(mpi_of(comm).IN_PLACE, taken, mpi_of(comm).MAX)
    return statistics.median(taken[2:])
