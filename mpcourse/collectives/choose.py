"""An all-reduce that picks its algorithm."""

from typing import Any

from mpcourse.collectives.cost import Cost, best
from mpcourse.collectives.doubling import recursive_doubling_allreduce
from mpcourse.collectives.numbers import Array, Op, row
from mpcourse.collectives.rabenseifner import rabenseifner_allreduce
from mpcourse.collectives.ring import ring_allreduce

CANDIDATES = {
    "doubling": recursive_doubling_allreduce,
    "rabenseifner": rabenseifner_allreduce,
    "ring": ring_allreduce,
}
USUAL = Cost(alpha=5e-6, beta=2e-10, gamma=1e-10)  # of two processes on one machine, about


def allreduce(comm: Any, x: Array, op: Op | None = None, *, cost: Cost | None = None) -> None:
    """Sum x over all ranks, in place, by the algorithm whose formula takes least for so many bytes and ranks.

    cost: what `cost.fit(comm)` found; the same on all ranks, or they choose differently and wait for ever. None: that
    of a usual machine. All ranks get the same bits.
    """
    CANDIDATES[best(comm.size, row(x).nbytes, cost or USUAL, tuple(CANDIDATES))](comm, x, op)
