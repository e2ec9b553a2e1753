"""What e05_recursive_doubling is asked: sums in log2 p rounds, for any number of ranks."""

from typing import TYPE_CHECKING

import numpy as np

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_ranks import COLLECTIVE, on_real_ranks, on_virtual_ranks, pickles
from mpcourse.course.check.status_page import HasStatusPage

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm
    from mpcourse.course.check.virtual_run import Ran

NAME = "recursive_doubling_allreduce"
MISSING = (
    "Some ranks are missing. With 3, 4 and 7 ranks write down, round by round, who gives what to whom. Where p is no "
    "power of two, who is too many gives x away before the first round, and gets the sum after the last."
)

TWICE = (
    "Some ranks are in the sum more than once. Exchange only with somebody whose sum has none of yours: rank ^ 1, then "
    "rank ^ 2, then rank ^ 4; and not before what arrives is there."
)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    on_virtual_ranks(answer, comm, NAME, _messages, MISSING, TWICE, (2, 3, 4, 7, 8, 1))


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    on_real_ranks(answer, comm, NAME)


def _messages(ran: "Ran") -> None:
    """Raise what tells of too many messages, bytes or rounds."""
    (x,), size = ran.given[0], ran.run.size
    if size == 1 or not len(x):
        return
    messages, traffic = ran.run.messages, ran.run.traffic
    rounds = size.bit_length() - 1
    power = 1 << rounds
    extra = size - power
    if not traffic.any():
        raise ran.wrong(None, "messages between ranks", "none: a collective call did it", COLLECTIVE)
    own = messages.sum(axis=1)
    a = int(own.argmax())
    if own[a] > rounds + bool(extra):
        why = "No rank sends more than the others: one exchange a round, and one message for a rank too many."
        raise ran.wrong(a, f"{counted(rounds + bool(extra), 'message')} from rank {a} at most", f"{own[a]}", why)
    for a, b in np.argwhere(messages):
        if traffic[a, b] != messages[a, b] * x.nbytes:
            why = "Each message is all that its rank has added up so far, as numbers of x's dtype."
            if pickles(ran):
                why = "Lower-case methods pickle: more bytes, and two copies. Upper-case ones send the array itself."
            asked = f"{x.nbytes} bytes a message, all of x"
            got = f"{traffic[a, b]} bytes in {counted(int(messages[a, b]), 'message')} to rank {b}"
            raise ran.wrong(int(a), asked, got, why)
    want, sent = power * rounds + 2 * extra, int(messages.sum())
    if sent != want:
        parts = f"{counted(rounds, 'round')} of {power} ranks"
        parts += f", and 2 messages for each of {extra} too many" if extra else ""
        why = "In round k each rank exchanges with one other, whose number differs by 2^k: log2 p rounds, no more."
        if sent < want:
            why = (
                "Each of q ranks exchanges in each of log2(q) rounds, where q is the largest power of two not above p. "
                "A tree, up to one rank and down again, sends less in twice as many rounds."
            )
        raise ran.wrong(None, f"{want} messages in all: {parts}", f"{sent}", why)
