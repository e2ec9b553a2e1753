"""Which ranks' elements are in which sums, round by round."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from mpcourse.common.comm import Comm
from mpcourse.virtual import run
from mpcourse.virtual.specs import Link

if TYPE_CHECKING:
    from mpcourse.virtual.ranks.comm import VirtualComm

_SECOND = Link("a second a message", bandwidth=float("inf"), latency=1.0)
MOST = 13  # ranks whose counts a float64 can hold as digits


def rounds(function: Callable[[Comm, np.ndarray], object], ranks: int, length: int | None = None) -> np.ndarray:
    """Count how often each rank is in each sum after each round of function(comm, x), which sums x in place.

    function: called on each of `ranks` virtual ranks; its errors pass through.
    ranks: 1 to 13.
    length: elements of x; None: as many as ranks, so that each chunk of a ring is one element.

    Returns counts, int64, (rounds + 1, ranks, length, ranks): counts[t, r, i, s] is how often rank s is in element i of
    rank r's x after t rounds; t = 0 is before the first round. A round is the time of one message; adding takes no
    time.
    Raises ValueError for more than 13 ranks, because their counts are the digits of a float64.
    """
    if not 1 <= ranks <= MOST:
        raise ValueError(f"{ranks} ranks: 1 to {MOST} can be told apart")
    length = ranks if length is None else length
    seen: list[list[tuple[float, np.ndarray]]] = [[] for _ in range(ranks)]

    def program(comm: "VirtualComm") -> None:
        x = np.full(length, 16.0**comm.rank)  # the digits of a sum, to base 16, show how often each rank is in it

        def look() -> None:
            seen[comm.rank].append((comm.world.clock[comm.me], x.copy()))

        look()
        function(cast(Comm, _Watched(comm, look)), x)
        look()

    last = round(run(program, ranks, _SECOND).seconds)
    states = np.array([[_at(t, states) for states in seen] for t in range(last + 1)])
    return states[..., None].astype(np.int64) >> 4 * np.arange(ranks) & 15


def _at(time: float, states: list[tuple[float, np.ndarray]]) -> np.ndarray:
    """Return the last of `states` that is not later than `time`."""
    return next(x for when, x in reversed(states) if when <= time + 1e-6)


class _Watched:
    """A communicator that records x before each call: between two calls, a rank adds up what has arrived."""

    def __init__(self, comm: Comm, look: Callable[[], None]) -> None:
        self._comm, self._look = comm, look

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._comm, name)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self._look()
            return value(*args, **kwargs)

        return call
