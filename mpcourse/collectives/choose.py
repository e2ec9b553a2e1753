"""An all-reduce that picks its algorithm."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from mpcourse.collectives.cost import Cost, best
from mpcourse.collectives.doubling import recursive_doubling_allreduce
from mpcourse.collectives.numbers import Array, Op
from mpcourse.collectives.rabenseifner import rabenseifner_allreduce
from mpcourse.collectives.ring import ring_allreduce
from mpcourse.collectives.segments import SEGMENT

# Of two with equal formulas the first one: with two ranks the ring is Rabenseifner's algorithm with less bookkeeping.
CANDIDATES: dict[str, Callable[..., None]] = {
    "doubling": recursive_doubling_allreduce,
    "ring": partial(ring_allreduce, segment=SEGMENT),
    "rabenseifner": partial(rabenseifner_allreduce, segment=SEGMENT),
}
# Of a few processes on one machine, about. A message takes 7 microseconds where each rank has a core of its own, and
# up to 80 where ranks take turns on fewer: between these, what a wrong choice loses is least.
USUAL = Cost(alpha=3e-5, beta=2e-10, gamma=5e-11)


def allreduce(comm: Any, x: Array, op: Op | None = None, *, cost: Cost | None = None) -> None:
    """Sum x over all ranks, in place, by the algorithm whose formula takes least for so many bytes and ranks.

    cost: what `fit(comm)` found; the same on all ranks, or they choose differently and wait for ever. None: that
    of a usual machine. All ranks get the same bits.
    """
    _picked(comm.size, getattr(x, "nbytes", 0), cost or USUAL)(comm, x, op)  # which looks at what x is


@lru_cache(1024)
def _picked(p: int, nbytes: int, cost: Cost) -> Callable[..., None]:
    """Comparing formulas takes longer than a short message."""
    return CANDIDATES[best(p, nbytes, cost, tuple(CANDIDATES))]
