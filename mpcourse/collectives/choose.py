"""An all-reduce that picks its algorithm by a formula of its cost."""

from collections.abc import Callable
from functools import lru_cache

from mpcourse.collectives.buffers import Array, Op
from mpcourse.collectives.cost import Cost, best
from mpcourse.collectives.doubling import recursive_doubling_allreduce
from mpcourse.collectives.fast.segmented import segmented_rabenseifner_allreduce, segmented_ring_allreduce
from mpcourse.common.comm import Comm

# Of two algorithms with equal formulas the first is taken: with two ranks the ring is Rabenseifner's with less to keep.
CANDIDATES: dict[str, Callable[..., None]] = {
    "doubling": recursive_doubling_allreduce,
    "ring": segmented_ring_allreduce,
    "rabenseifner": segmented_rabenseifner_allreduce,
}
# Roughly that of a few processes on one machine. A message takes 7 microseconds where each rank has a core of its own,
# and up to 80 where ranks take turns on fewer cores. Between these values a wrong choice costs least.
USUAL = Cost(alpha=3e-5, beta=2e-10, gamma=5e-11)


def allreduce(comm: Comm, x: Array, op: Op | None = None, *, cost: Cost | None = None) -> None:
    """Sum x over all ranks, in place, by the algorithm that is fastest by its formula. All ranks call it.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    x: a contiguous numpy array or CPU tensor of any shape; length and dtype are the same on all ranks.
    op: an associative and commutative operation on two flat buffers; None: the sum.
    cost: what `fit(comm)` measured, in seconds per message and per byte; None: that of a usual machine. It must be the
    same on all ranks; otherwise they choose different algorithms and wait without end.

    All ranks get the same bits. A communicator that counts (`mpcourse.plan` has one) is given the number of bytes, and
    nothing is sent.
    Raises TypeError where x is neither an array nor a tensor; ValueError where it is not contiguous, not writeable, or
    not in the host's memory.
    """
    nbytes = getattr(x, "nbytes", 0)  # any of the algorithms refuses an x without nbytes
    if (count := getattr(comm, "count_sum", None)) is not None:
        count(nbytes)
    else:
        _chosen(comm.size, nbytes, cost or USUAL)(comm, x, op)


@lru_cache(1024)
def _chosen(p: int, nbytes: int, cost: Cost) -> Callable[..., None]:
    """Choose once for each size, because comparing formulas takes longer than a short message."""
    return CANDIDATES[best(p, nbytes, cost, tuple(CANDIDATES))]
