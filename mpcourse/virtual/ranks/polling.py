"""How time passes on a rank that computes, sleeps, reads its clock, or asks whether something is done."""

import math
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from mpcourse.virtual.ranks.open_requests import Open
from mpcourse.virtual.ranks.threads import HUB, Turns
from mpcourse.virtual.ranks.waiting import Waiter

if TYPE_CHECKING:
    from mpcourse.virtual.ranks.matching import Matching

POLL_SECONDS = 1e-7  # seconds of one Test or Iprobe
# The clock moves by TICK seconds between two readings with nothing in between, so no program divides by zero. A rank
# that reads it READINGS times in a row waits for time to pass: then each reading takes POLL_SECONDS.
TICK, READINGS = 1e-9, 10
# When ranks have asked EXACT times without success, a rank that does nothing else, BARE times in a row and twice for
# each rank, sleeps until something is sent to it: a second of asking would take ten million calls.
EXACT, BARE = 100, 20
# A program may give up asking after some number of times, or after some time. So that this time passes quickly, the
# clock of a rank that has used this part of its `max_polls`, while no other rank can go on, moves by more each time:
# the last step is e**30 times as long as the first one.
PATIENT, GROWTH = 0.6, 30


class Polling:
    """A part of World."""

    size: int
    max_polls: int
    record: bool
    clock: list[float]
    current: int
    turns: Turns
    matching: "Matching"
    open: list[Open]
    spans: list[Any]
    waiters: list[Waiter]
    polls: int
    said: int
    begin: Callable[[int], None]
    mine: Callable[[int], None]
    push: Callable[[float, int], None]
    _suspend: Callable[[int, FrameType], None]

    def compute(self, rank: int, seconds: float, name: str = "compute") -> None:
        """Let rank `rank` be busy with something other than messages."""
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"a rank computes for 0 seconds or more, not {seconds}")
        start = self.clock[rank]
        self.clock[rank] = start + seconds
        if self.record:
            self.spans += (rank, name, "compute", start, start + seconds)

    def sleep(self, really: Callable[[float], None], seconds: float) -> None:
        """Replace time.sleep: a rank's sleep takes time on its own clock, and no real time."""
        rank = self.current
        if rank == HUB or self.turns.foreign(rank):
            really(seconds)
            return
        if not 0 <= seconds < float("inf"):
            raise ValueError("sleep length must be non-negative")
        start = self.clock[rank]
        self.clock[rank] = start + seconds
        if self.record:
            self.spans += (rank, "sleep", "compute", start, start + seconds)

    def time(self, rank: int) -> float:
        """Return what rank `rank` reads off its clock, which has moved since its last reading."""
        waiter, now = self.waiters[rank], self.clock[rank]
        waiter.readings = waiter.readings + 1 if now == waiter.read else 0
        if waiter.readings:
            self.clock[rank] = now + (POLL_SECONDS if waiter.readings >= READINGS else TICK)
            if now == waiter.asked:  # a rank that only reads the clock between two questions does nothing else
                waiter.asked = self.clock[rank]
        waiter.read = self.clock[rank]
        return waiter.read

    def may_ask(self, waiter: Waiter) -> bool:
        """Return whether a rank has not yet asked too often since any rank sent something."""
        if waiter.said != self.said:
            waiter.vain, waiter.said = 0, self.said
        return waiter.vain < self.max_polls

    def next_poll(self, waiter: Waiter) -> float:
        """Return the seconds until a rank asks again."""
        late = max(0, waiter.vain / self.max_polls - PATIENT) / (1 - PATIENT)  # from 0 to 1
        return POLL_SECONDS * math.exp(GROWTH * late)

    def poll(self, rank: int, is_done: Callable[[], bool], call: Callable[[], str]) -> bool:
        """Return whether something is done by now. Asking without success takes a moment."""
        self.begin(rank)
        waiter, now = self.waiters[rank], self.clock[rank]
        if is_done():
            return True
        may_ask = self.may_ask(waiter)
        waiter.vain += 1
        self.polls += 1
        waiter.bare = waiter.bare + 1 if now == waiter.asked else 1
        waiter.call = call
        waiter.asleep = not may_ask or (self.polls > EXACT and waiter.bare > BARE + 2 * self.size)
        end = self.open[rank].next_end(now)
        if waiter.asleep and (there := self.matching.next(rank, now)) is not None:
            end = there if end is None else min(there, end)
        if not waiter.asleep:
            self.push(now + POLL_SECONDS if end is None else min(now + POLL_SECONDS, end), rank)
        elif end is not None:
            self.push(end, rank)
        self._suspend(rank, sys._getframe(1))
        waiter.asked = self.clock[rank]
        if waiter.asleep:  # its next calls may ask for what woke it
            waiter.asleep, waiter.bare = False, 0
        return is_done()
