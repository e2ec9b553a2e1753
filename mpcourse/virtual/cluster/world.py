"""The cluster itself: whose turn it is, what time it is on each rank, and which send meets which receive.

A discrete-event simulation. A rank runs until it must wait, or until it is about to speak at a time when another rank
could still say something earlier. So whatever ranks say to each other is said in the order of time, a run is
deterministic, and when nobody can go on, that is a deadlock and not a slow run.
"""

import heapq
import itertools
import random
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from mpcourse.virtual.cluster.errors import ClusterError, RankFailed
from mpcourse.virtual.cluster.mail import Mail, Message
from mpcourse.virtual.cluster.open import Open
from mpcourse.virtual.cluster.request import Line, Request, told_call
from mpcourse.virtual.cluster.topology import Topology, Wires
from mpcourse.virtual.cluster.turns import HUB, Numbers, Turns
from mpcourse.virtual.line import told as told_line

ASKING = 1e-7  # seconds of one Test, Iprobe, or of reading the clock
# When ranks have asked EXACT times in vain, whoever does nothing else, BARE times in a row and twice for each rank,
# sleeps until something is said to it: a second of asking would take ten million calls.
EXACT, BARE = 6000, 20
MOST_VAIN = 5000  # how often a rank may ask while nobody says anything, before that counts as waiting
READINGS = 10  # of the clock, with nothing in between, before it moves: who measures nothing measures 0

_running: "World | None" = None


def here() -> "World":
    """The cluster whose ranks are running. Raises RuntimeError outside of `run`."""
    if _running is None:
        raise RuntimeError(
            "no virtual ranks are running: this is known within mpcourse.virtual.run(program, size) only"
        )
    return _running


class Waiter:
    """Why a rank is suspended: until `left` requests are done, or the first of them, or a message is there."""

    def __init__(self) -> None:
        self.requests: Sequence[Request] = ()
        self.left, self.first = 0, False
        # How often this rank has asked in vain in a row, with nothing in between, and when last.
        self.bare, self.asked = 0, -1.0
        self.asleep = False  # until something is said to it
        self.readings = 0  # of its clock, in a row with nothing in between
        self.read = -1.0  # when this rank read its clock
        self.frame: FrameType | None = None  # None: it is not suspended
        self.call = ""
        self.message: tuple[int, int, int] | None = None


class World:
    """The state of one run of `size` ranks. clock: seconds, by rank. current: the rank that runs."""

    def __init__(self, size: int, topology: Topology, eager: int, record: bool) -> None:
        self.size, self.topology, self.eager, self.record = size, topology, eager, record
        self.turns = Turns()
        self.wires, self.numbers = Wires(topology, size), Numbers(size)
        self.ordered = self.wires.shared  # where messages of several ranks take the same wire, their order counts
        self.clock, self.current = [0.0] * size, HUB
        self.comms: list[Any] = []  # every rank's COMM_WORLD
        self.selves: list[Any] = []  # and its COMM_SELF
        self.communicators: list[Any] = []  # one rank's view of each that was made
        self.results: list[Any] = [None] * size
        self.errors: dict[int, BaseException] = {}  # by rank, the first first
        self.failure: BaseException | None = None
        self.done: set[int] = set()
        self.waiters = [Waiter() for _ in range(size)]
        self.open = [Open() for _ in range(size)]  # requests that nobody has waited for
        self.meetings: dict[tuple, Any] = {}  # collective calls that not all ranks have reached
        self.contexts = itertools.count(size + 1)
        self.groups: dict[tuple, int] = {}  # contexts of communicators that only their members make
        self.mail = Mail(self)
        self.spans: list[Any] = []  # rank, name, kind, start, end; the next rank, ...
        # When, order, rank, its ticket; or HUB, and a receive from any source that chooses its message then.
        self._ready: list[tuple[float, int, int, Any]] = []
        self._order = itertools.count()
        self._tickets = [0] * size
        self.polls = 0  # how often ranks have asked in vain
        self.vain = 0  # how often since anybody said something

    # -- turns --

    def run(self, program: Callable[[Any], Any]) -> None:
        """Run `program(comm)` on every rank, until all have ended."""
        global _running
        _running = self
        outside, pythons = Numbers(1), random.getstate()

        def body(rank: int) -> int:
            self.current = rank
            self.numbers.enter(rank)
            try:  # also where another has failed already: this one is told in its first call
                self.results[rank] = program(self.comms[rank])
            except BaseException as error:
                self.errors[rank] = error
                if self.failure is None:
                    self.failure = RankFailed(f"rank {rank} raised {type(error).__name__}: {error}")
            return self._end(rank)

        for rank in range(1, self.size):
            self.push(0.0, rank)
        before = np.random.mtrand._rand._bit_generator
        try:
            self.turns.run(self.size, 0, body, self._interrupted)
        finally:
            _running = None
            np.random.mtrand.set_bit_generator(before)
            outside.give_back(0)
            random.setstate(pythons)

    def _interrupted(self, error: BaseException) -> None:
        """Ranks end in their next call, and the caller is told what it was."""
        self.errors = {HUB: error}
        self.failure = RankFailed("the run was interrupted")

    def push(self, time: float, rank: int) -> None:
        heapq.heappush(self._ready, (time, next(self._order), rank, self._tickets[rank]))

    def _pop(self) -> int | None:
        """The rank that can go on at the earliest time, which is now its time."""
        ready, tickets = self._ready, self._tickets
        while ready:
            time, _, rank, ticket = heapq.heappop(ready)
            if rank == HUB:
                self.mail.choose(ticket, time)
            elif ticket == tickets[rank]:
                tickets[rank] += 1
                if time > self.clock[rank]:
                    self.clock[rank] = time
                return rank
        return None

    def _next(self) -> int | None:
        """The same; if there is none, ranks that sleep ask again. None: that has led to nothing."""
        to = self._pop()
        if to is None and self.vain < MOST_VAIN * self.size:
            for rank, waiter in enumerate(self.waiters):
                if waiter.asleep:
                    self.push(self.clock[rank] + ASKING, rank)
            to = self._pop()
        return to

    def _switch(self, rank: int, to: int) -> None:
        self.numbers.leave(rank)
        self.current = to
        self.turns.switch(rank, to)
        self.current = rank
        self.numbers.enter(rank)

    def _end(self, rank: int) -> int:
        """Rank `rank` is done. Who has the turn now."""
        self.done.add(rank)
        to = None if self.failure else self._next()
        if to is None and len(self.done) < self.size:
            if self.failure is None:
                self._stuck()
            to = next(r for r in range(self.size) if r not in self.done)
        self.numbers.leave(rank)
        return HUB if to is None else to

    def mine(self, rank: int) -> None:
        """Raise where ranks have failed, or another thread than that of rank `rank` asks."""
        if self.failure is not None:
            self._raise()
        if self.turns.foreign(rank):
            self.fail(
                "misuse",
                f"rank {rank} speaks from a thread that it has started: on virtual ranks only the thread may that runs "
                "the program, as with MPI's THREAD_FUNNELED",
            )

    def begin(self, rank: int) -> None:
        """Rank `rank` is about to speak: those that are earlier go first."""
        self.mine(rank)
        ready = self._ready
        while ready:
            time, _, who, ticket = ready[0]
            if who == HUB and time < self.clock[rank]:
                self.mail.choose(heapq.heappop(ready)[3], time)
            elif who == HUB or ticket == self._tickets[who]:
                break
            else:  # no longer true
                heapq.heappop(ready)
        if ready and ready[0][0] < self.clock[rank]:
            self.push(self.clock[rank], rank)
            to = self._pop()
            assert to is not None
            if to != rank:
                self._switch(rank, to)
            if self.failure is not None:
                self._raise()

    def _suspend(self, rank: int, frame: FrameType) -> None:
        """Until its waiter, which says why, has what it waits for."""
        waiter = self.waiters[rank]
        waiter.frame = frame
        self.current = HUB  # what a receive chooses now may be what this rank waits for
        to = self._next()
        self.current = rank
        if to is None:
            self._stuck()
        elif to != rank:
            self._switch(rank, to)
        waiter.frame = waiter.message = None
        if self.failure is not None:
            self._raise()

    def _raise(self) -> NoReturn:
        failure = self.failure
        assert failure is not None
        if isinstance(failure, ClusterError):
            raise type(failure)(failure.kind, failure.text, failure.waits, failure.cycle)
        raise RankFailed(str(failure))

    def fail(self, kind: str, text: str) -> NoReturn:
        """Tell all ranks of a mistake; the one that runs raises it now."""
        if self.failure is None:
            self.failure = ClusterError(kind, text)
        self._raise()

    def _stuck(self) -> None:
        from mpcourse.virtual.cluster.deadlock import explain

        self.failure = explain(self)

    # -- time --

    def compute(self, rank: int, seconds: float, name: str = "compute") -> None:
        """Rank `rank` is busy with something else than messages."""
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"a rank computes for 0 seconds or more, not {seconds}")
        start = self.clock[rank]
        self.clock[rank] = start + seconds
        self.vain = 0
        if self.record:
            self.spans += (rank, name, "compute", start, start + seconds)

    def time(self, rank: int) -> float:
        """What rank `rank` reads off its clock, which has moved since it read it last."""
        waiter = self.waiters[rank]
        waiter.readings = waiter.readings + 1 if self.clock[rank] == waiter.read else 0
        if waiter.readings >= READINGS:
            self.clock[rank] += ASKING
        waiter.read = self.clock[rank]
        return waiter.read

    def wait(self, rank: int, requests: Sequence[Request], first: bool = False) -> None:
        """Suspend rank `rank` until all of `requests` are done, or the first of them."""
        self.mine(rank)
        clock = self.clock
        since = clock[rank]
        if first:
            if not any(q.is_done() for q in requests):
                self._await(rank, requests, True, sys._getframe(1))
        else:
            if pending := [q for q in requests if q.end is None]:
                self._await(rank, pending, False, sys._getframe(1))
            latest = since
            for q in requests:
                if q.end > latest:  # type: ignore[operator]
                    latest = q.end  # type: ignore[assignment]
            if latest > clock[rank]:
                clock[rank] = latest
        if self.record and clock[rank] > since:
            self.spans += (rank, requests[0].name, "wait", since, clock[rank])

    def _await(self, rank: int, pending: Sequence[Request], first: bool, frame: FrameType) -> None:
        """Suspend rank `rank` until all of `pending` have an end, or one of them is over."""
        waiter = self.waiters[rank]
        waiter.requests, waiter.first, waiter.left = pending, first, len(pending)
        for q in pending:
            q.awaited = True
        while True:
            for q in pending:
                if q.from_any and q.end is None:
                    self.mail.choose(q)
            if not first and not waiter.left:
                break
            if first and (ends := [q.end for q in pending if q.end is not None]):
                if min(ends) <= self.clock[rank]:
                    break
                self.push(min(ends), rank)
            self._suspend(rank, frame)
        self._tickets[rank] += 1  # it does not wait any more, whoever would have woken it
        waiter.requests = ()
        if first:
            for q in pending:
                q.awaited = False

    def poll(self, rank: int, is_done: Callable[[], bool], call: str) -> bool:
        """Whether something is done by now. Asking in vain takes a moment."""
        self.begin(rank)
        waiter, now = self.waiters[rank], self.clock[rank]
        if is_done():
            return True
        self.vain += 1
        self.polls += 1
        waiter.bare = waiter.bare + 1 if now == waiter.asked else 1
        waiter.call = call
        waiter.asleep = self.polls > EXACT and waiter.bare > BARE + 2 * self.size
        end = self.open[rank].next_end(now)
        if waiter.asleep and (there := self.mail.next(rank, now)) is not None:
            end = there if end is None else min(there, end)
        if not waiter.asleep and self.vain < MOST_VAIN * self.size:
            self.push(now + ASKING if end is None else min(now + ASKING, end), rank)
        elif end is not None:
            self.push(end, rank)
        self._suspend(rank, sys._getframe(1))
        waiter.asked = self.clock[rank]
        if waiter.asleep:  # what woke it may be what it asks for in its next calls
            waiter.asleep, waiter.bare = False, 0
        return is_done()

    def settle(self, q: Request, end: float) -> None:
        """A request will be over at `end`; its rank goes on then, if that is what it waits for."""
        q.end = end
        self.open[q.owner].ending(q)
        waiter = self.waiters[q.owner]
        if waiter.asleep:
            self.push(end, q.owner)
        if not q.awaited:
            return
        waiter.left -= 1
        if q.owner == self.current:  # which sees it by itself
            return
        if waiter.first:
            self.push(end, q.owner)
        elif not waiter.left:
            for other in waiter.requests:
                if other.end > end:
                    end = other.end
            self.push(end, q.owner)

    def wake_for(self, r: Request, time: float) -> None:
        """What a receive from any source waits for may be there at `time`."""
        if r.awaited:
            self.push(max(time, self.clock[r.owner]), r.owner)
        else:  # its rank may be busy with something else, and the sender waits
            heapq.heappush(self._ready, (time, next(self._order), HUB, r))

    def watch(self, rank: int, message: tuple[int, int, int], call: str) -> None:
        """Suspend rank `rank` until a message is there: of a communicator's context, from a source, with a tag."""
        soonest = self.mail.soonest(message[0], rank, *message[1:])
        waiter = self.waiters[rank]
        waiter.call, waiter.message = call, message
        if soonest is not None:  # a Sendrecv, which does not wait for its turn: somebody may still send earlier
            self.push(soonest, rank)
        self._suspend(rank, sys._getframe(2))

    def missing(self, q: Request) -> list[int]:
        """The ranks of the world that have not reached the collective call `q`."""
        meeting = self.meetings.get(q.tag)  # type: ignore[call-overload]
        return [] if meeting is None else [r for i, r in enumerate(q.comm.ranks) if i not in meeting.arrived]

    # -- words --

    def who(self, q: Request | Message) -> str:
        """As errors tell of it: "rank 0's Send(dest=1, tag=0), file.py:12"."""
        call = q.call if isinstance(q, Request) else told_call(q.name, "dest", q.dest, q.tag)
        return f"rank {q.owner}'s {call}, {self.told(q.line)}"

    @staticmethod
    def told(line: Line | None) -> str:
        if line is None:
            return "an unknown line"
        code, at = line
        number = next((n for begin, end, n in code.co_lines() if begin <= at < end and n), code.co_firstlineno)
        return told_line((code.co_filename, number))
