"""What e05_exchange is asked: on virtual ranks values, bytes and messages; on real ones, long arrays."""

from typing import TYPE_CHECKING

import numpy as np

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_ranks import pickles, turned
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import first_difference, same

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

WHERE = "Rank r sends to (r + 1) % p and receives from (r - 1) % p, where p is comm.size."
COPY = "Nothing was written into recv: a name on the left of = makes a new variable and leaves the array as it is."


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    others = turned(comm)
    # MPI keeps copies of short arrays only. Two have one length and other numbers: nothing of a call is of use later.
    for seed, (ranks, length) in enumerate(((comm, 5), (comm, 5), (comm, 300_000), (others, 7))):
        _really(answer, ranks, length, seed + 10 * int(ranks is others and comm.rank == comm.size - 1))


def _really(answer: Answer, comm: "TracedComm", length: int, seed: int) -> None:
    send = np.random.default_rng([comm.rank, seed]).standard_normal(length + comm.rank)
    left = (comm.rank - 1) % comm.size
    want = np.random.default_rng([left, seed]).standard_normal(length + left)
    recv = np.full(len(want), np.nan)
    answer.call("exchange", comm, send, recv, changes=(recv,))
    same(recv, want, f"recv on rank {comm.rank}", COPY if np.isnan(recv).all() else WHERE)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    from mpcourse.course.check.virtual_run import SIZES

    for size in SIZES:
        for lengths, dtype in (
            ([3] * size, "f8"),
            ([4 + rank for rank in range(size)], "i8"),
            ([2 * ((rank + 1) % size) for rank in range(size)], "f4"),  # the last one's is empty
        ):
            _exchange(answer, comm, size, lengths, np.dtype(dtype))


def _exchange(answer: Answer, comm: HasStatusPage, size: int, lengths: list[int], dtype: np.dtype) -> None:
    from mpcourse.course.check.virtual_run import virtually

    def send(rank: int) -> np.ndarray:
        return (100 * (rank + 1) + np.arange(lengths[rank])).astype(dtype)

    def arguments(rank: int) -> tuple:
        return send(rank), np.full(lengths[(rank - 1) % size], -1, dtype)

    ran = virtually(answer, comm, "exchange", size, arguments, changes=lambda given: given[1:])
    for rank, (_, recv) in enumerate(ran.given):
        want = send((rank - 1) % size)
        if difference := first_difference(recv, want, f"recv on rank {rank}"):
            raise ran.wrong(rank, *difference, _why(recv, want, rank, size))
    for rank in range(size):
        sent, nbytes, right = ran.run.messages[rank], ran.run.traffic[rank], (rank + 1) % size
        size_of = send(rank).nbytes
        if (size == 1 or not size_of) and not sent.any():
            continue  # copied, or nothing to send
        if not sent.any():
            why = "Collective calls are for what concerns all ranks. From one rank to one other: a send and a receive."
            raise ran.wrong(rank, f"one message from rank {rank} to rank {right}", "none", why)
        if sent.sum() != 1 or sent[right] != 1:
            to = ", ".join(f"{sent[r]} to rank {r}" for r in np.flatnonzero(sent))
            why = "One message a rank does it: to the rank after it. recv's length says how much arrives."
            raise ran.wrong(rank, f"one message from rank {rank}, to rank {right}", to, why)
        if nbytes[right] != size_of:
            why = "The array goes as it is: all of it, nothing else, in its own dtype."
            if pickles(ran):
                why = "Lower-case methods pickle: more bytes, and two copies. Upper-case ones send the array itself."
            raise ran.wrong(
                rank, f"{size_of} bytes from rank {rank}, those of its array", f"{nbytes[right]} bytes", why
            )


def _why(recv: np.ndarray, want: np.ndarray, rank: int, size: int) -> str:
    """The misconception behind a wrong array. Numbers tell whose they are: rank r's are 100 (r + 1) and above."""
    owner = int(recv[0]) // 100 - 1
    if (recv == -1).all():
        return COPY
    if recv[0] == want[0]:
        return "The beginning is right: was all of it sent, and received?"
    if owner == rank:
        return f"Those are this rank's own numbers. {WHERE}"
    if 0 <= owner < size:
        return f"Those are rank {owner}'s numbers. {WHERE}"
    return "Nobody sent that. Was a buffer read before its Wait? Only then has the message arrived."
