"""Multiple completions (MPI 4.1, section 3.7.5): calls on several requests at once: all of them, any, or some."""

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpcourse.virtual.ranks.constants import UNDEFINED

if TYPE_CHECKING:
    from mpcourse.virtual.ranks.request import Request, Status


_OVER = operator.attrgetter("over")  # without a Python step for each, because programs poll thousands of requests


class Several:
    """Class methods of Request.

    A request that is over, or was never begun, counts as done in Waitall and Testall, and does not count in the others.
    statuses: a list is extended by as many as are needed, as in mpi4py.
    """

    @classmethod
    def Waitall(cls, requests: "Sequence[Request]", statuses: "list[Status] | None" = None) -> bool:
        cls.waitall(requests, statuses)
        return True

    @classmethod
    def waitall(cls, requests: "Sequence[Request]", statuses: "list[Status] | None" = None) -> list[Any]:
        if alive := tuple(each for each in requests if not each.over):
            alive[0].world.wait(alive[0].owner, alive)
        return _complete(requests, range(len(requests)), statuses)

    @classmethod
    def Testall(cls, requests: "Sequence[Request]", statuses: "list[Status] | None" = None) -> bool:
        return cls.testall(requests, statuses)[0]

    @classmethod
    def testall(
        cls, requests: "Sequence[Request]", statuses: "list[Status] | None" = None
    ) -> tuple[bool, list[Any] | None]:
        q = _alive(requests)
        if q is not None and not q.world.poll(q.owner, functools.partial(_all_done, q, requests), lambda: "Testall()"):
            return False, None
        return True, _complete(requests, range(len(requests)), statuses)

    @classmethod
    def Waitany(cls, requests: "Sequence[Request]", status: "Status | None" = None) -> int:
        return cls.waitany(requests, status)[0]

    @classmethod
    def waitany(cls, requests: "Sequence[Request]", status: "Status | None" = None) -> tuple[int, Any]:
        if not (q := _alive(requests)):
            return UNDEFINED, None
        places = _places(requests)
        done = q.world.wait_for_one(q.owner, requests, places)
        first = min((requests[i := places[each]].end, i) for each in done)[1]
        return first, requests[first]._complete(status)

    @classmethod
    def Testany(cls, requests: "Sequence[Request]", status: "Status | None" = None) -> tuple[int, bool]:
        return cls.testany(requests, status)[:2]

    @classmethod
    def testany(cls, requests: "Sequence[Request]", status: "Status | None" = None) -> tuple[int, bool, Any]:
        if not (q := _alive(requests)):
            return UNDEFINED, True, None
        if not q.world.poll(q.owner, functools.partial(_any_done, q, requests), lambda: "Testany()"):
            return UNDEFINED, False, None
        first = min((requests[i].end, i) for i in _done(q, requests))[1]
        return first, True, requests[first]._complete(status)

    @classmethod
    def Waitsome(cls, requests: "Sequence[Request]", statuses: "list[Status] | None" = None) -> list[int] | None:
        return cls.waitsome(requests, statuses)[0]

    @classmethod
    def waitsome(
        cls, requests: "Sequence[Request]", statuses: "list[Status] | None" = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        if not (q := _alive(requests)):
            return None, None
        places = _places(requests)
        done = sorted(places[each] for each in q.world.wait_for_one(q.owner, requests, places))
        return done, _complete(requests, done, statuses)

    @classmethod
    def Testsome(cls, requests: "Sequence[Request]", statuses: "list[Status] | None" = None) -> list[int] | None:
        return cls.testsome(requests, statuses)[0]

    @classmethod
    def testsome(
        cls, requests: "Sequence[Request]", statuses: "list[Status] | None" = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        if not (q := _alive(requests)):
            return None, None
        if not q.world.poll(q.owner, functools.partial(_any_done, q, requests), lambda: "Testsome()"):
            return [], []
        done = _done(q, requests)
        return done, _complete(requests, done, statuses)


def _alive(requests: "Sequence[Request]") -> "Request | None":
    """Return the first request that has begun and is not over, or None."""
    each = next(itertools.compress(requests, map(operator.not_, map(_OVER, requests))), None)
    return each


def _places(requests: "Sequence[Request]") -> dict[int, int]:
    """Return the place of each request that is not over, by its id."""
    alive = itertools.compress(enumerate(requests), map(operator.not_, map(_OVER, requests)))
    return {id(each): i for i, each in alive}


def _ended(of: "Request") -> set[int]:
    """Return the ids of all requests that have ended by now and that the rank of `of` has not waited for."""
    return of.world.open[of.owner].ended(of.world.clock[of.owner])


def _done(of: "Request", requests: "Sequence[Request]") -> list[int]:
    """Return the places of requests that are done by now, and are not over."""
    ended = _ended(of)
    return [i for i, each in enumerate(requests) if id(each) in ended]


def _any_done(of: "Request", requests: "Sequence[Request]") -> bool:
    ended = _ended(of)  # most often none has: then there is no need to look at each
    return bool(ended) and any(id(each) in ended for each in requests)


def _all_done(of: "Request", requests: "Sequence[Request]") -> bool:
    ended = _ended(of)
    return all(each.over or id(each) in ended for each in requests)


def _complete(requests: "Sequence[Request]", places: Sequence[int], statuses: "list[Status] | None") -> list[Any]:
    """Return what each request at `places` has received."""
    padded: list[Any] = [None] * len(places) if statuses is None else list(statuses)
    if len(padded) < len(places):
        from mpcourse.virtual.ranks.request import Status

        padded += [Status() for _ in places[len(padded) :]]
        if isinstance(statuses, list):
            statuses += padded[len(statuses) :]
    return [requests[at]._complete(status) for at, status in zip(places, padded, strict=False)]
