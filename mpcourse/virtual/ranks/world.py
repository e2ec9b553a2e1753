"""The cluster itself: which rank has the turn, the time on each rank, and which send meets which receive.

This is a discrete-event simulation. A rank runs until it must wait, or until it is about to communicate at a time when
another rank could still do so earlier. So ranks communicate in the order of time, a run is deterministic, and a state
in which no rank can go on is a deadlock and not a slow run.
"""

import functools
import heapq
import itertools
import random
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from mpcourse.common.errors import RankFailed
from mpcourse.virtual.line import location as source_location
from mpcourse.virtual.ranks.deadlock import explain, stalled, told, waiting
from mpcourse.virtual.ranks.errors import ClusterError
from mpcourse.virtual.ranks.match_queues import MatchQueues
from mpcourse.virtual.ranks.matching import Matching, Message
from mpcourse.virtual.ranks.open_requests import Open
from mpcourse.virtual.ranks.place import asked, place
from mpcourse.virtual.ranks.polling import Polling
from mpcourse.virtual.ranks.request import Line, Request, call_text
from mpcourse.virtual.ranks.threads import HUB, Numbers, Turns, set_torch_state, torch_state
from mpcourse.virtual.ranks.topology import Topology, Wires
from mpcourse.virtual.ranks.waiting import Waiter, Waiting

IDLE = 5  # seconds for which every rank waits for a turn that none of them has, before the run ends with an error
MOST_LOOKS = 2  # seconds for which ranks may continue after one of them has raised

_running: "World | None" = None


def here() -> "World":
    """Return the cluster whose ranks are running. Raises RuntimeError outside of `run`."""
    if _running is None:
        raise RuntimeError(
            "no virtual ranks are running: this is known within mpcourse.virtual.run(program, size) only"
        )
    return _running


class World(Waiting, Polling):
    """The state of one run of `size` ranks. clock: seconds, by rank. current: the rank that runs."""

    def __init__(self, size: int, topology: Topology, eager: int, record: bool, max_polls: int) -> None:
        self.size, self.topology, self.eager, self.record = size, topology, eager, record
        self.max_polls = max_polls
        self.turns = Turns()
        self.wires, self.numbers = Wires(topology, size), Numbers(size)
        self.ordered = self.wires.shared  # where messages of several ranks take the same wire, their order counts
        self.clock, self.current = [0.0] * size, HUB
        self.comms: list[Any] = []  # every rank's COMM_WORLD
        self.selves: list[Any] = []  # and its COMM_SELF
        self.members: dict[int, tuple[int, ...]] = {}  # the ranks of each communicator that was made, by its context
        self.results: list[Any] = [None] * size
        self.errors: dict[int, BaseException] = {}  # by rank, the earliest first
        self.raised: tuple[int, BaseException] | None = None  # the first error that did not follow a failure of the run
        self.failure: BaseException | None = None
        self.looks_after_error = 0
        self.others: dict[int, str] = {}  # where the others were when a rank raised
        self.done: set[int] = set()
        self.finalized: set[int] = set()  # ranks that have called MPI.Finalize
        self.waiters = [Waiter() for _ in range(size)]
        self.open = [Open() for _ in range(size)]  # requests that were not waited for
        self.collectives: list[list[Any]] = [[] for _ in range(size)]  # by rank, the collective calls that it has made
        self.open_collectives: dict[tuple, Any] = {}  # collective calls that not all ranks have reached
        self.collectives_until: dict[Any, float] = {}  # by communicator: when the last call that all reached ends
        self.contexts = itertools.count(size + 1)
        self.order = itertools.count()  # of all that is sent, received and done next
        self.matching = Matching(self)
        self.spans: list[Any] = []  # rank, name, kind, start, end; the next rank, ...
        # What is done next: when, order, a rank that goes on, its ticket; or HUB, and a message that gets its receive.
        # A rank's ticket changes when it goes on, so of several entries that would wake it only the first one does.
        self._ready: list[tuple[float, int, int, Any]] = []
        self._tickets = [0] * size
        self.polls = 0  # how often ranks have asked without success
        self.said = 0  # how often any rank communicated

    # -- turns --

    def run(self, program: Callable[[Any], Any]) -> None:
        """Run `program(comm)` on every rank, until all have ended."""
        global _running
        _running = self
        outside, pythons, sleep = torch_state(), random.getstate(), time.sleep
        time.sleep = functools.partial(self.sleep, sleep)

        def body(rank: int) -> int:
            self.current = rank
            self.numbers.enter(rank)
            try:  # even if another rank has failed already: this one learns of it in its first call
                self.results[rank] = program(self.comms[rank])
            except BaseException as error:
                self.errors[rank] = error
                if self.failure is None and self.raised is None:  # the others continue until they wait, like processes
                    self.raised = rank, error
            return self._end(rank)

        for rank in range(1, self.size):
            self.push(0.0, rank)
        before = np.random.mtrand._rand._bit_generator
        try:
            self.turns.run(self.size, 0, body, self._interrupted, self._looked)
        finally:
            _running = None
            np.random.mtrand.set_bit_generator(before)
            time.sleep = sleep
            set_torch_state(outside)
            random.setstate(pythons)

    def _interrupted(self, error: BaseException) -> None:
        """Let ranks end in their next call, and the caller get the error."""
        self.raised = HUB, error
        self.failure = RankFailed("the run was interrupted")

    def _looked(self, alive: list[int], idle: int) -> int | None:
        """Check on the ranks, once a second.

        alive: ranks whose threads are alive. idle: how often in a row none of them had the turn. Returns the rank that
        should get the turn, to raise; None: the run continues.
        """
        if idle == IDLE:  # the last resort, where this cluster has a fault
            if self.failure is None:
                self.failure = stalled(self, alive)
            self.done |= set(range(self.size)) - set(alive)
            return alive[0] if alive else HUB
        if self.raised and self.failure is None:
            self.looks_after_error += 1
            if self.looks_after_error > MOST_LOOKS:  # the others need not end at all
                self._rank_failed()
        return None

    def push(self, time: float, rank: int) -> None:
        heapq.heappush(self._ready, (time, next(self.order), rank, self._tickets[rank]))

    def decide_later(self, queues: MatchQueues, m: Message, r: Request) -> None:
        """Let `m`, which `r` may take, find its receive when the time has come at which it was sent.

        This holds even if its rank is busy with something else, because the sender waits. A rank that waits looks for
        it by itself, on its own clock.
        """
        m.awaited = True
        time = m.posted
        if r.awaited:
            time = max(time, self.clock[r.owner])
            self.push(time, r.owner)
        heapq.heappush(self._ready, (time, next(self.order), HUB, (queues, m, m.order)))

    def _decide(self) -> None:
        """Decide which receive gets the message that is next."""
        queues, m, order = heapq.heappop(self._ready)[3]
        if m.order == order and not m.taken:  # a Sendrecv may have reused it for another message
            self.matching.decide(queues, m)

    def _pop(self) -> int | None:
        """Return the rank that can go on at the earliest time, after setting its clock to it; None if there is none."""
        ready, tickets = self._ready, self._tickets
        while ready:
            if ready[0][2] == HUB:
                self._decide()
                continue
            time, _, rank, ticket = heapq.heappop(ready)
            if ticket == tickets[rank]:
                tickets[rank] += 1
                if time > self.clock[rank]:
                    self.clock[rank] = time
                return rank
        return None

    def _next(self) -> int | None:
        """Return the rank that goes on next. If there is none, let the earliest one that sleeps ask again.

        None: it asked without success, or the run has failed. Only one rank asks at a time, until it sleeps again; all
        together would take turns after each call.
        """
        try:
            to = self._pop()
        except ClusterError:  # a message and its receive do not belong together, which all ranks raise
            return None
        if to is None:
            asleep = [r for r, waiter in enumerate(self.waiters) if waiter.asleep and self.may_ask(waiter)]
            if asleep:
                rank = min(asleep, key=self.clock.__getitem__)
                self.push(self.clock[rank] + self.next_poll(self.waiters[rank]), rank)
                to = self._pop()
        return to

    def _switch(self, rank: int, to: int) -> None:
        self.numbers.leave(rank)
        self.current = to
        self.turns.switch(rank, to)
        self.current = rank
        self.numbers.enter(rank)

    def _end(self, rank: int) -> int:
        """End rank `rank`; return the rank that gets the turn."""
        self.done.add(rank)
        to = None if self.failure else self._next()
        if to is None and len(self.done) < self.size:
            self._stuck()
            to = next(r for r in range(self.size) if r not in self.done)
        self.numbers.leave(rank)
        return HUB if to is None else to

    def mine(self, rank: int) -> None:
        """Raise where ranks have failed, or another thread than that of rank `rank` asks."""
        if self.failure is not None:
            self._raise()
        if self.turns.foreign(rank):
            if rank in self.finalized:
                self.fail("misuse", f"rank {rank}, {place(sys._getframe())}: this comes after MPI.Finalize()")
            self.fail(
                "misuse",
                f"rank {rank} speaks from a thread that it has started: on virtual ranks only the thread may that runs "
                "the program, as with MPI's THREAD_FUNNELED",
            )

    def begin(self, rank: int) -> None:
        """Let ranks whose time is earlier go first, before rank `rank` communicates."""
        self.mine(rank)
        ready = self._ready
        while ready:
            time, _, who, ticket = ready[0]
            if who == HUB and time < self.clock[rank]:
                self._decide()
            elif who == HUB or ticket == self._tickets[who]:
                break
            else:  # no longer valid
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
        """Suspend a rank until its waiter, which says why, has what it waits for."""
        waiter = self.waiters[rank]
        waiter.frame = frame
        self.current = HUB  # this rank may be waiting for what a receive now chooses
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
            raise type(failure)(failure.kind, failure.text, failure.waits, failure.cycle, failure.number)
        rank = self.current
        if rank not in self.others and rank not in self.errors:
            call, caller = asked(sys._getframe(1))
            self.others[rank] = f"rank {rank} comes to {call}, {place(caller)}"
        raise RankFailed(str(failure))

    def fail(self, kind: str, text: str, number: int | None = None) -> NoReturn:
        """Report a mistake to all ranks; the running one raises it now."""
        if self.failure is None:
            self.failure = ClusterError(kind, text, number=number)
        self._raise()

    def _stuck(self) -> None:
        """Handle that no rank goes on: where none has raised, that is a deadlock."""
        if self.failure is not None:
            return
        if self.raised:
            self.others = {wait.rank: told(wait) for wait in waiting(self)}
            self._rank_failed()
        else:
            self.failure = explain(self)

    def _rank_failed(self) -> None:
        """Make all other ranks raise from now on, because one has."""
        assert self.raised is not None
        rank, error = self.raised
        self.failure = RankFailed(f"rank {rank} raised {type(error).__name__}: {error}")

    def missing(self, q: Request) -> list[int]:
        """Return the ranks of the world that have not reached the collective call `q`."""
        call = self.open_collectives.get(q.tag)  # type: ignore[call-overload]
        return [] if call is None else [r for i, r in enumerate(q.ranks) if i not in call.arrived]

    # -- words --

    def who(self, q: Request | Message) -> str:
        """Describe a request or message in error messages: "rank 0's Send(dest=1, tag=0), file.py:12"."""
        call = q.call if isinstance(q, Request) else call_text(q.name, "dest", q.dest, q.tag)
        return f"rank {q.owner}'s {call}, {self.line(q)}"

    def line(self, q: Request | Message) -> str:
        """Return where the program began a request or sent a message.

        If this library did it for the program, and has returned since, only the library's line is known.
        """
        frame = self.frame_of(q.owner)
        while frame is not None and (frame.f_code, frame.f_lasti) != q.line:
            frame = frame.f_back
        return self.location(q.line) if frame is None else place(frame)

    def frame_of(self, rank: int) -> FrameType | None:
        """Return the innermost frame of a rank's thread."""
        return sys._current_frames().get(self.turns.idents[rank])

    @staticmethod
    def location(line: Line | None) -> str:
        if line is None:
            return "an unknown line"
        code, at = line
        number = next((n for begin, end, n in code.co_lines() if begin <= at < end and n), code.co_firstlineno)
        return source_location((code.co_filename, number))
