"""What e05_exchange is asked: on virtual ranks values, bytes and messages; on real ones, long arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.ranks import PICKLES, pickles, rebinds, turned
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import Rule, Test, always, demand, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import first_difference

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm
    from mpcourse.course.check.virtual_run import Ran

NAME = "exchange"

# -- inputs: rank r's numbers are from 100 (r + 1) to 100 (r + 2), so that numbers tell whose they are --

LENGTHS = (  # of each rank's array
    ("f8", lambda rank, size: 3),
    ("i8", lambda rank, size: 4 + rank),
    ("f4", lambda rank, size: 2 * ((rank + 1) % size)),  # the last one's is empty
)


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    others = turned(comm)
    # MPI keeps copies of short arrays only. Two have one length and other numbers: no call helps a later one.
    for seed, (ranks, length) in enumerate(((comm, 5), (comm, 5), (comm, 300_000), (others, 7))):
        alone = ranks is others and comm.rank == comm.size - 1
        sends = [
            100 * (rank + 1) + 100 * np.random.default_rng([rank, seed, alone]).random(length + rank)
            for rank in range(ranks.size)
        ]
        send, recv = sends[ranks.rank], np.full(len(sends[ranks.rank - 1]), -1.0)
        result = answer.call(NAME, ranks, send, recv, changes=(recv,))
        demand(VALUES, Facts(ranks.rank, sends, recv, result, answer.path.read_text()))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    from mpcourse.course.check.virtual_run import SIZES, virtually

    for size in SIZES:
        for dtype, length in LENGTHS:
            sends = [(100 * (rank + 1) + np.arange(length(rank, size))).astype(dtype) for rank in range(size)]

            def arguments(rank: int, sends: list[np.ndarray] = sends) -> tuple:
                return sends[rank].copy(), np.full(len(sends[rank - 1]), -1, sends[rank].dtype)

            ran = virtually(answer, comm, NAME, size, arguments, changes=lambda given: given[1:])
            everyone = [
                Facts(rank, sends, recv, ran.results[rank], ran.source, ran) for rank, (_, recv) in enumerate(ran.given)
            ]
            ran.demand(judge(VALUES, *everyone) or judge(MESSAGES, *everyone))


# -- facts --


@dataclass(frozen=True)
class Facts:
    """A call on `rank`: what it left in recv, which was full of -1, and the messages between virtual ranks.

    sends: what each rank was given to send. result: what the call returned. source: the text of the learner's file.
    """

    rank: int
    sends: Sequence[np.ndarray]
    recv: np.ndarray
    result: Any
    source: str
    ran: "Ran | None" = None

    size = property(lambda self: len(self.sends))
    right = property(lambda self: (self.rank + 1) % self.size)
    want = property(lambda self: self.sends[self.rank - 1])
    difference = property(lambda self: first_difference(self.recv, self.want, f"recv on rank {self.rank}"))
    untouched = property(lambda self: bool((self.recv == -1).all()))
    rebound = property(lambda self: rebinds(self.source, NAME, 2))
    returned = property(lambda self: first_difference(self.result, self.want, "") is None)
    shorter = property(lambda self: shorter_dtype(self.recv, self.want))
    owners = property(lambda self: {*np.floor(self.recv / 100) - 1})

    messages = property(lambda self: self.ran.run.messages[self.rank])
    sent = property(lambda self: int(self.messages.sum()))
    nbytes = property(lambda self: int(self.ran.run.traffic[self.rank, self.right]))
    nbytes_asked = property(lambda self: self.sends[self.rank].nbytes)
    may_send_nothing = property(lambda self: self.size == 1 or not self.nbytes_asked)
    pickled = property(lambda self: pickles(self.ran))

    @property
    def owner(self) -> int | None:
        """The rank whose numbers are in recv; None where they are several ranks', or no rank's."""
        return next((rank for rank in range(self.size) if self.owners == {rank}), None)

    # What sentences show.

    asked = property(lambda self: self.difference[0])
    got = property(lambda self: self.difference[1])
    receivers = property(
        lambda self: ", ".join(f"{self.messages[r]} to rank {r}" for r in np.flatnonzero(self.messages))
    )


# -- what is said --

WHERE = "Rank r sends to (r + 1) % p and receives from (r - 1) % p, where p is comm.size."
VALUES = [
    Test(
        "recv as it was",
        lambda f: f.difference and f.untouched,
        "{asked}",
        "{got}",
        [
            Rule(
                "recv bound anew",
                lambda f: f.rebound,
                "Nothing was written into recv: a name on the left of = makes a new variable and leaves the array as "
                "it is.",
            ),
            Rule(
                "returned",
                lambda f: f.returned,
                "Nothing was written into recv: what arrived was returned, and the caller looks into recv.",
            ),
            Rule(
                "alone",
                lambda f: f.size == 1,
                "Nothing was written into recv: the only rank is the one before itself, so recv gets its own array.",
            ),
            Rule(
                "not written",
                always,
                "Nothing was written into recv: receive into recv itself, or copy into it by recv[:] = ...",
            ),
        ],
    ),
    Test(
        "value",
        lambda f: f.difference,
        "{asked}",
        "{got}",
        [
            Rule(
                "shorter dtype",
                lambda f: f.shorter,
                "Close, but rounded as {shorter} rounds: the array goes as it is, in its own dtype.",
            ),
            Rule(
                "only the beginning",
                lambda f: f.recv[0] == f.want[0],
                "The beginning is right: was all of it sent, and received?",
            ),
            Rule("own numbers", lambda f: f.owner == f.rank, f"Those are this rank's own numbers. {WHERE}"),
            Rule("another rank's", lambda f: f.owner is not None, f"Those are rank {{owner}}'s numbers. {WHERE}"),
            Rule(
                "no rank's",
                always,
                "Nobody sent that. Was a buffer read before its Wait? Only then has the message arrived.",
            ),
        ],
    ),
]
MESSAGES = [
    Test(
        "no message",
        lambda f: not f.sent and not f.may_send_nothing,
        "one message from rank {rank} to rank {right}",
        "none",
        "Collective calls are for what concerns all ranks. From one rank to one other: a send and a receive.",
    ),
    Test(
        "several messages",
        lambda f: f.sent and (f.sent != 1 or f.messages[f.right] != 1),
        "one message from rank {rank}, to rank {right}",
        "{receivers}",
        "One message a rank does it: to the rank after it. recv's length says how much arrives.",
    ),
    Test(
        "bytes",
        lambda f: f.sent and f.nbytes != f.nbytes_asked,
        "{nbytes_asked} bytes from rank {rank}, those of its array",
        "{nbytes} bytes",
        [
            Rule("pickles", lambda f: f.pickled, PICKLES),
            Rule("other bytes", always, "The array goes as it is: all of it, nothing else, in its own dtype."),
        ],
    ),
]
