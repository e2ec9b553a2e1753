"""What e05_ring_allreduce is asked: sums, chunks between neighbours, and that all ranks send in every step."""

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts import sums
from mpcourse.course.check.facts.ranks import PICKLES, pickles
from mpcourse.course.check.rules import Finding, Rule, Test, always, judge
from mpcourse.course.check.status_page import HasStatusPage

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm
    from mpcourse.course.check.virtual_run import Ran

NAME = "ring_allreduce"
SIZES = (3, 2, 4, 7, 1)  # two ranks show little


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    sums.check_virtually(answer, comm, NAME, SIZES, MEMBERS, _judge_messages)


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    sums.check(answer, comm, NAME)


# -- facts --


@dataclass(frozen=True)
class Messages:
    """The messages that `rank` sent in a run; None: all ranks."""

    ran: "Ran"
    rank: int | None = None

    size = property(lambda self: self.ran.run.size)
    n = property(lambda self: len(self.ran.given[0][0]))
    item = property(lambda self: self.ran.given[0][0].itemsize)
    nbytes = property(lambda self: self.n * self.item)
    pickled = property(lambda self: pickles(self.ran))
    collective = property(lambda self: any({*names} - {"Barrier", "barrier"} for names in self.ran.run.collectives))
    steps = property(lambda self: 2 * (self.size - 1))
    sent = property(lambda self: int(self.ran.run.messages[self.rank].sum()))
    receivers = property(lambda self: np.flatnonzero(self.ran.run.messages[self.rank]))
    copies = property(lambda self: [event for event in self.ran.run.events if event.kind == "copy"])

    traffic = property(lambda self: int(self.ran.run.traffic.sum()))
    least = property(lambda self: self.steps * self.nbytes)  # each chunk goes p - 1 steps, twice
    most = property(lambda self: self.steps * (self.n + self.size - 1) * self.item)  # chunks filled up to one length
    all_of_x = property(lambda self: self.item == 8 and any(copy.nbytes == self.nbytes for copy in self.copies))

    @property
    def times_as_long(self) -> float:
        """How long all ranks together took, in times that one link needs which is never idle."""
        busy: defaultdict[str, float] = defaultdict(float)
        for copy in self.copies:
            busy[copy.lane] += copy.end - copy.start
        return self.ran.run.seconds / max(busy.values())

    longest = property(lambda self: max(self.copies, key=lambda copy: copy.nbytes))
    # Chunks of one length, rounded up; or rounded down, and one of them takes the rest.
    longest_chunk = property(lambda self: (self.n // self.size + max(self.n % self.size, 1)) * self.item)

    # What sentences show.

    ranks = property(lambda self: " and ".join(f"rank {b}" for b in self.receivers))
    times = property(lambda self: f"{self.times_as_long:.1f}")
    chunk = property(lambda self: self.nbytes // self.size)
    longest_nbytes = property(lambda self: self.longest.nbytes)
    longest_lane = property(lambda self: self.longest.lane)


def _judge_messages(ran: "Ran") -> Finding | None:
    everyone = Messages(ran)
    if everyone.size == 1:
        return None
    ranks = [Messages(ran, rank) for rank in range(everyone.size)]
    long = everyone.n >= 4 * everyone.size  # short arrays show neither whether ranks take turns nor how x is cut
    return (
        (judge([sums.BY_HAND], everyone) if everyone.n else None)
        or judge(EACH_RANK, *ranks)
        or judge(BYTES + (LONG_ARRAYS if long else []), everyone)
    )


# -- what is said --

TWICE = "A part that was in the sum came in again: what has been summed up is copied (=), and not added (+=)."
FEWER = "Fewer numbers than ranks: some chunks are empty, and the others have to be summed all the same."
MISSING = "Some ranks are missing: draw which chunk each rank sends in each step, for 3 ranks, and count the steps."
MEMBERS = sums.tests_of_members(TWICE, FEWER, MISSING)

EACH_RANK = [
    Test(
        "several neighbours",
        lambda f: len(f.receivers) > 1 or any((b - f.rank) % f.size not in (1, f.size - 1) for b in f.receivers),
        "messages from rank {rank} to one neighbour only",
        "messages to {ranks}",
        "In the ring each rank sends to one neighbour, always the same, and receives from the other.",
    ),
    Test(
        "too many messages",
        lambda f: f.sent > f.steps,
        "{steps} messages from rank {rank}",
        "{sent}",
        "One message a step: p - 1 steps to add, p - 1 to copy.",
    ),
]
ALL_BYTES = "{least} bytes sent by all {size} ranks, for x of {nbytes} bytes: each chunk goes p - 1 steps, twice"
BYTES = [
    Test(
        "too few bytes",
        lambda f: f.traffic < f.least,
        ALL_BYTES,
        "{traffic} bytes",
        [
            Rule("collective call", lambda f: f.collective, "By hand means all of it: no collective call does a part."),
            Rule("another dtype", always, "Numbers travel in x's own dtype, and each chunk in each step."),
        ],
    ),
    Test(
        "too many bytes",
        lambda f: f.traffic > f.most,
        ALL_BYTES,
        "{traffic} bytes",
        [
            Rule("pickles", lambda f: f.pickled, PICKLES),
            Rule(
                "all of x",
                lambda f: f.all_of_x,
                "All of x goes round. Cut it into p chunks, and send one of them in each step.",
            ),
            Rule("another dtype", always, "Each message is one chunk, of numbers of x's own dtype."),
        ],
    ),
]
LONG_ARRAYS = [
    Test(
        "one after the other",  # p times as long; two turns, of even ranks and of odd ones, pass
        lambda f: f.size > 2 and f.times_as_long > 3.2,
        "all links busy at the same time",
        "{times} times as long as one link needs, with {size} ranks",
        "They send one after the other: each waits for a message before it sends its own. All send in every step.",
    ),
    Test(
        "uneven chunks",  # all of x is no chunk: with more ranks the time shows what that costs
        lambda f: f.longest_chunk < f.longest.nbytes < f.nbytes,
        "messages of about {chunk} bytes, for x of {nbytes} bytes and {size} ranks",
        "one of {longest_nbytes} bytes, {longest_lane}",
        "Chunks are about equally long: then all links carry the same.",
    ),
]
