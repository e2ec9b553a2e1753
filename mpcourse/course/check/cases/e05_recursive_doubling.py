"""What e05_recursive_doubling is asked: sums in log2 p rounds, for any number of ranks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts import sums
from mpcourse.course.check.facts.ranks import PICKLES, pickles
from mpcourse.course.check.rules import Finding, Rule, Test, always, judge
from mpcourse.course.check.status_page import HasStatusPage

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm
    from mpcourse.course.check.virtual_run import Ran

NAME = "recursive_doubling_allreduce"
SIZES = (2, 3, 4, 7, 8, 1)


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
    nbytes = property(lambda self: self.ran.given[0][0].nbytes)
    pickled = property(lambda self: pickles(self.ran))
    rounds = property(lambda self: self.size.bit_length() - 1)
    power = property(lambda self: 1 << self.rounds)  # ranks that exchange
    extra = property(lambda self: self.size - self.power)  # ranks too many
    sent = property(lambda self: int(self.ran.run.messages[self.rank].sum()))
    most = property(lambda self: self.rounds + bool(self.extra))
    all_sent = property(lambda self: int(self.ran.run.messages.sum()))
    all_asked = property(lambda self: self.power * self.rounds + 2 * self.extra)

    @property
    def other(self) -> int | None:
        """The first rank to which this one sent messages that are longer or shorter than x."""
        messages, traffic = self.ran.run.messages[self.rank], self.ran.run.traffic[self.rank]
        return next((int(b) for b in np.flatnonzero(traffic != messages * self.nbytes)), None)

    # What sentences show.

    most_shown = property(lambda self: counted(self.most, "message"))
    to_other = property(lambda self: self.ran.run.traffic[self.rank, self.other])
    messages_to_other = property(lambda self: counted(int(self.ran.run.messages[self.rank, self.other]), "message"))
    parts = property(
        lambda self: (
            f"{counted(self.rounds, 'round')} of {self.power} ranks"
            + (f", and 2 messages for each of {self.extra} too many" if self.extra else "")
        )
    )


def _judge_messages(ran: "Ran") -> Finding | None:
    everyone = Messages(ran)
    if everyone.size == 1 or not everyone.nbytes:
        return None
    ranks = [Messages(ran, rank) for rank in range(everyone.size)]
    return judge([sums.BY_HAND], everyone) or judge(EACH_RANK, *ranks) or judge(ALL_RANKS, everyone)


# -- what is said --

TWICE = (
    "Some ranks are in the sum more than once. Exchange only with a rank whose sum has none of yours: rank ^ 1, then "
    "rank ^ 2, then rank ^ 4; and not before what arrives is there."
)
FEWER = "Fewer numbers than ranks: short arrays, too, are summed over all ranks."
MISSING = (
    "Some ranks are missing. With 3, 4 and 7 ranks write down, round by round, who gives what to whom. Where p is no "
    "power of two, who is too many gives x away before the first round, and gets the sum after the last."
)
MEMBERS = sums.tests_of_members(TWICE, FEWER, MISSING)

EACH_RANK = [
    Test(
        "too many messages",
        lambda f: f.sent > f.most,
        "{most_shown} from rank {rank} at most",
        "{sent}",
        "No rank sends more than the others: one exchange a round, and one message for a rank too many.",
    ),
    Test(
        "bytes",
        lambda f: f.other is not None,
        "{nbytes} bytes a message, all of x",
        "{to_other} bytes in {messages_to_other} to rank {other}",
        [
            Rule("pickles", lambda f: f.pickled, PICKLES),
            Rule(
                "other bytes",
                always,
                "Each message is all that its rank has added up so far, as numbers of x's dtype.",
            ),
        ],
    ),
]
ALL_RANKS = [
    Test(
        "messages",
        lambda f: f.all_sent != f.all_asked,
        "{all_asked} messages in all: {parts}",
        "{all_sent}",
        [
            Rule(
                "too few",
                lambda f: f.all_sent < f.all_asked,
                "Each of q ranks exchanges in each of log2(q) rounds, where q is the largest power of two not above p. "
                "A tree, up to one rank and down again, sends less in twice as many rounds.",
            ),
            Rule(
                "too many",
                always,
                "In round k each rank exchanges with one other, whose number differs by 2^k: log2 p rounds, no more.",
            ),
        ],
    )
]
