"""How a rank waits: for requests, for the first of them, or until a message has arrived."""

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from mpcourse.virtual.ranks.match_queues import ANY
from mpcourse.virtual.ranks.open_requests import Open
from mpcourse.virtual.ranks.request import Request

if TYPE_CHECKING:
    from mpcourse.virtual.ranks.matching import Matching


class Waiter:
    """Why a rank is suspended: until `left` requests are done, or the first of them, or a message has arrived."""

    def __init__(self) -> None:
        self.requests: Sequence[Request] = ()
        self.left, self.first = 0, False
        # How often this rank has asked without success in a row, with nothing in between, and when it last asked.
        self.bare, self.asked = 0, -1.0
        self.vain, self.said = 0, 0  # questions without success since ranks have sent this much
        self.asleep = False  # until something is sent to it
        self.readings = 0  # of its clock, in a row with nothing in between
        self.read = -1.0  # when this rank read its clock
        self.frame: FrameType | None = None  # None: it is not suspended
        self.call: Callable[[], str] = str  # what it asks, for error messages
        self.message: tuple[int, int, int] | None = None


class Waiting:
    """A part of World."""

    record: bool
    clock: list[float]
    current: int
    matching: "Matching"
    open: list[Open]
    spans: list
    waiters: list[Waiter]
    mine: Callable[[int], None]
    push: Callable[[float, int], None]
    _suspend: Callable[[int, FrameType], None]

    def wait(self, rank: int, requests: Sequence[Request]) -> None:
        """Suspend rank `rank` until all of `requests` are done."""
        self.mine(rank)
        clock = self.clock
        since = clock[rank]
        if pending := [q for q in requests if q.end is None]:
            self._await(rank, pending, sys._getframe(1))
        latest = since
        for q in requests:
            if q.end > latest:  # type: ignore[operator]
                latest = q.end  # type: ignore[assignment]
        if latest > clock[rank]:
            clock[rank] = latest
        if self.record and clock[rank] > since:
            self.spans += (rank, requests[0].name, "wait", since, clock[rank])

    def wait_for_one(self, rank: int, requests: Sequence[Request], wanted: dict[int, int]) -> set[int]:
        """Suspend rank `rank` until one of `requests` is done; return the ids of all done. wanted: places, by id."""
        self.mine(rank)
        waiter, opened, since = self.waiters[rank], self.open[rank], self.clock[rank]
        waiter.requests, waiter.first = requests, True
        while not (done := {each for each in opened.ended(self.clock[rank]) if each in wanted}):
            if (end := opened.next_end(self.clock[rank])) is not None:
                self.push(end, rank)
            self._suspend(rank, sys._getframe(1))
        waiter.requests, waiter.first = (), False
        if self.record and self.clock[rank] > since:
            first = requests[min(wanted[each] for each in done)]
            self.spans += (rank, first.name, "wait", since, self.clock[rank])
        return done

    def _await(self, rank: int, pending: Sequence[Request], frame: FrameType) -> None:
        """Suspend rank `rank` until all of `pending` have an end."""
        waiter = self.waiters[rank]
        waiter.requests, waiter.left = pending, len(pending)
        for q in pending:
            q.awaited = True
        while True:
            for q in pending:
                if q.receives and q.peer == ANY and q.end is None:
                    self.matching.look(q)
            if not waiter.left:
                break
            self._suspend(rank, frame)
        waiter.requests = ()

    def settle(self, q: Request, end: float) -> None:
        """Record that a request will be over at `end`; its rank goes on then, if it waits for it."""
        q.end = end
        self.open[q.owner].ending(q)
        waiter = self.waiters[q.owner]
        if waiter.asleep:
            self.push(end, q.owner)
        if waiter.first and q.owner != self.current:
            self.push(end, q.owner)
        if not q.awaited:
            return
        waiter.left -= 1
        if q.owner == self.current:  # it will see this by itself
            return
        if not waiter.left:
            for other in waiter.requests:
                if other.end > end:
                    end = other.end
            self.push(end, q.owner)

    def watch(self, rank: int, message: tuple[int, int, int], call: Callable[[], str]) -> None:
        """Suspend rank `rank` until a message has arrived: (context of a communicator, source, tag)."""
        soonest = self.matching.soonest(message[0], rank, *message[1:])
        waiter = self.waiters[rank]
        waiter.call, waiter.message = call, message
        if soonest is not None:  # a Sendrecv, which does not wait for its turn: a rank may still send an earlier one
            self.push(soonest, rank)
        self._suspend(rank, sys._getframe(2))
