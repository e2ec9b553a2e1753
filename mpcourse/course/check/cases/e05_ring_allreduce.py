"""What e05_ring_allreduce is asked: sums, chunks between neighbours, and that all ranks send in every step."""

from typing import TYPE_CHECKING

import numpy as np

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_ranks import COLLECTIVE, on_real_ranks, on_virtual_ranks, pickles
from mpcourse.course.check.status_page import HasStatusPage

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm
    from mpcourse.course.check.virtual_run import Ran

NAME = "ring_allreduce"
SIZES = (3, 2, 4, 7, 1)  # two ranks show little
MISSING = "Some ranks are missing: draw which chunk each rank sends in each step, for 3 ranks, and count the steps."

TWICE = "A part that was in the sum came in again: what has been summed up is copied (=), and not added (+=)."


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    on_virtual_ranks(answer, comm, NAME, _messages, MISSING, TWICE, SIZES)


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    on_real_ranks(answer, comm, NAME)


def _messages(ran: "Ran") -> None:
    """Raise what tells of too many bytes or messages, or of ranks that wait for each other."""
    (x,), size = ran.given[0], ran.run.size
    n, item = len(x), x.itemsize
    if size == 1:
        return
    traffic, messages = ran.run.traffic, ran.run.messages
    if n and not traffic.any():
        raise ran.wrong(None, "messages between neighbours", "none: a collective call did it", COLLECTIVE)
    for a in range(size):
        to = np.flatnonzero(messages[a])
        if len(to) > 1 or any((b - a) % size not in (1, size - 1) for b in to):
            ranks = " and ".join(f"rank {b}" for b in to)
            why = "In the ring each rank sends to one neighbour, always the same, and receives from the other."
            raise ran.wrong(a, f"messages from rank {a} to one neighbour only", f"messages to {ranks}", why)
        if messages[a].sum() > 2 * (size - 1):
            asked = f"{2 * (size - 1)} messages from rank {a}"
            raise ran.wrong(a, asked, f"{messages[a].sum()}", "One message a step: p - 1 steps to add, p - 1 to copy.")
    _bytes(ran, n, item)
    if n >= 4 * size:
        _together(ran)
        _evenly(ran, n, item)


def _bytes(ran: "Ran", n: int, item: int) -> None:
    """Each chunk once a step, of x's own numbers."""
    size, traffic = ran.run.size, ran.run.traffic
    least, sent = 2 * (size - 1) * n * item, int(traffic.sum())  # each chunk goes p - 1 steps, twice
    most = 2 * (size - 1) * (n + size - 1) * item  # with chunks filled up to one length
    asked = f"{least} bytes sent by all {size} ranks, for x of {n * item} bytes: each chunk goes p - 1 steps, twice"
    if sent < least:
        why = "By hand means all of it: no collective call does a part. And numbers travel in x's own dtype."
        raise ran.wrong(None, asked, f"{sent} bytes", why)
    if sent > most:
        why = "Each message is one chunk, of numbers of x's own dtype."
        if pickles(ran):
            why = "Lower-case methods pickle: more bytes, and two copies. Upper-case ones send the chunk itself."
        elif item == 8 and any(e.kind == "copy" and e.nbytes == n * item for e in ran.run.events):
            why = "All of x goes round. Cut it into p chunks, and send one of them in each step."
        raise ran.wrong(None, asked, f"{sent} bytes", why)


def _together(ran: "Ran") -> None:
    """All ranks send at once. One after the other takes p times as long; in two turns, even and odd, is let pass."""
    size = ran.run.size
    busy: dict[str, float] = {}
    for event in ran.run.events:
        if event.kind == "copy":
            busy[event.lane] = busy.get(event.lane, 0.0) + event.end - event.start
    least = max(busy.values())  # of one link that is never idle
    if size > 2 and ran.run.seconds > 3.2 * least:
        times = ran.run.seconds / least
        why = "They send one after the other: each waits for a message before it sends its own. All send in every step."
        asked = "all links busy at the same time"
        raise ran.wrong(None, asked, f"{times:.1f} times as long as one link needs, with {size} ranks", why)


def _evenly(ran: "Ran", n: int, item: int) -> None:
    """Chunks of one length, rounded up; or rounded down, and one of them takes the rest."""
    size = ran.run.size
    longest = max((event for event in ran.run.events if event.kind == "copy"), key=lambda event: event.nbytes)
    # Who sends all of x has no chunks, and with more ranks _together tells what that costs.
    if (n // size + max(n % size, 1)) * item < longest.nbytes < n * item:
        why = "Chunks are about equally long: then all links carry the same."
        asked = f"messages of about {n * item // size} bytes, for x of {n * item} bytes and {size} ranks"
        raise ran.wrong(None, asked, f"one of {longest.nbytes} bytes, {longest.lane}", why)
