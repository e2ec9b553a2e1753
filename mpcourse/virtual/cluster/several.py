"""mpi4py's calls on several requests at once: all of them, any, or some."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpcourse.virtual.cluster.numbers import UNDEFINED

if TYPE_CHECKING:
    from mpcourse.virtual.cluster.request import Request, Status


class Several:
    """Class methods of Request. A request that is over, or was never begun, counts as done in Waitall and Testall, and
    not at all in the others. statuses: a list gets as many more as are needed, as mpi4py does it.
    """

    @classmethod
    def Waitall(cls, requests: "Sequence[Request]", statuses: "list[Status] | None" = None) -> bool:
        cls.waitall(requests, statuses)
        return True

    @classmethod
    def waitall(cls, requests: "Sequence[Request]", statuses: "list[Status] | None" = None) -> list[Any]:
        if alive := _alive(requests):
            alive[0].world.wait(alive[0].owner, alive)
        return _complete(requests, range(len(requests)), statuses)

    @classmethod
    def Testall(cls, requests: "Sequence[Request]", statuses: "list[Status] | None" = None) -> bool:
        return cls.testall(requests, statuses)[0]

    @classmethod
    def testall(
        cls, requests: "Sequence[Request]", statuses: "list[Status] | None" = None
    ) -> tuple[bool, list[Any] | None]:
        alive = _alive(requests)
        if alive and not alive[0].world.poll(alive[0].owner, lambda: all(q.is_done() for q in alive), "Testall()"):
            return False, None
        return True, _complete(requests, range(len(requests)), statuses)

    @classmethod
    def Waitany(cls, requests: "Sequence[Request]", status: "Status | None" = None) -> int:
        return cls.waitany(requests, status)[0]

    @classmethod
    def waitany(cls, requests: "Sequence[Request]", status: "Status | None" = None) -> tuple[int, Any]:
        if not (alive := _alive(requests)):
            return UNDEFINED, None
        alive[0].world.wait(alive[0].owner, alive, first=True)
        first = _first(requests)
        return first, requests[first].begun._complete(status)

    @classmethod
    def Testany(cls, requests: "Sequence[Request]", status: "Status | None" = None) -> tuple[int, bool]:
        return cls.testany(requests, status)[:2]

    @classmethod
    def testany(cls, requests: "Sequence[Request]", status: "Status | None" = None) -> tuple[int, bool, Any]:
        if not (alive := _alive(requests)):
            return UNDEFINED, True, None
        if not alive[0].world.poll(alive[0].owner, lambda: any(q.is_done() for q in alive), "Testany()"):
            return UNDEFINED, False, None
        first = _first(requests)
        return first, True, requests[first].begun._complete(status)

    @classmethod
    def Waitsome(cls, requests: "Sequence[Request]", statuses: "list[Status] | None" = None) -> list[int] | None:
        return cls.waitsome(requests, statuses)[0]

    @classmethod
    def waitsome(
        cls, requests: "Sequence[Request]", statuses: "list[Status] | None" = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        if not (alive := _alive(requests)):
            return None, None
        alive[0].world.wait(alive[0].owner, alive, first=True)
        done = _done(requests)
        return done, _complete(requests, done, statuses)

    @classmethod
    def Testsome(cls, requests: "Sequence[Request]", statuses: "list[Status] | None" = None) -> list[int] | None:
        return cls.testsome(requests, statuses)[0]

    @classmethod
    def testsome(
        cls, requests: "Sequence[Request]", statuses: "list[Status] | None" = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        if not (alive := _alive(requests)):
            return None, None
        if not alive[0].world.poll(alive[0].owner, lambda: any(q.is_done() for q in alive), "Testsome()"):
            return [], []
        done = _done(requests)
        return done, _complete(requests, done, statuses)


def _alive(requests: "Sequence[Request]") -> "tuple[Request, ...]":
    """What is under way and not over."""
    return tuple(q for each in requests if not (q := each.begun).over)


def _done(requests: "Sequence[Request]") -> list[int]:
    """The places of those that are done by now, and are not over."""
    return [i for i, each in enumerate(requests) if not (q := each.begun).over and q.is_done()]


def _first(requests: "Sequence[Request]") -> int:
    """The place of the one that was done first."""
    return min(_done(requests), key=lambda i: (requests[i].begun.end, i))


def _complete(requests: "Sequence[Request]", places: Sequence[int], statuses: "list[Status] | None") -> list[Any]:
    """What came by each request at `places`."""
    told: list[Any] = [None] * len(places) if statuses is None else list(statuses)
    if len(told) < len(places):
        from mpcourse.virtual.cluster.request import Status

        told += [Status() for _ in places[len(told) :]]
        if isinstance(statuses, list):
            statuses += told[len(statuses) :]
    return [requests[at].begun._complete(status) for at, status in zip(places, told, strict=False)]
