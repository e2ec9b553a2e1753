"""What e00_hello is asked."""

import time

from mpcourse.check.answer import Answer
from mpcourse.check.watched import WatchedComm
from mpcourse.check.wrong import Wrong, same, short


def check(answer: Answer, comm: WatchedComm) -> None:
    """Every rank must call this."""
    _greet(answer, comm)
    # Once more with the ranks renumbered, so that only a greeting through `comm` itself comes out right, and with the
    # higher ranks early: a rank 0 that takes messages as they come gets them in the wrong order.
    turned = comm.Split(0, -comm.rank)
    assert isinstance(turned, WatchedComm)
    time.sleep(0.05 * (turned.size - turned.rank - 1))
    _greet(answer, turned)


def _greet(answer: Answer, comm: WatchedComm) -> None:
    rank, size = comm.rank, comm.size
    before = comm.begun
    got = answer.call("greet", comm)
    want = [f"rank {r} of {size}" for r in range(size)]
    if rank > 0:
        if got is not None:
            raise Wrong(f"None on rank {rank}", short(got), _why_not_none(got, want))
        if comm.begun == before:
            raise Wrong(
                f"a message from rank {rank} to rank 0",
                f"rank {rank} sent nothing through comm",
                "Rank 0 made up what the others say. It cannot know that: they must tell it, by a message.",
            )
        return
    same(got, want, "the list on rank 0", _why(got, want, size))


def _why_not_none(got: object, want: list[str]) -> str:
    if got == want:
        return "allgather (or gather and then bcast) gives the list to every rank. Only rank 0 is asked for it."
    return "The greeting itself is returned. Send it to rank 0, which alone returns something: the list."


def _why(got: object, want: list[str], size: int) -> str:
    """The misconception behind a wrong result on rank 0."""
    if got is None:
        return "Nothing came back on rank 0. Is the list printed rather than returned, or collected on another rank?"
    if isinstance(got, str):
        return "That is one string. Each rank has its own variables: the others' greetings must be sent and collected."
    if not isinstance(got, list):
        return "Return a list of strings."
    if len(got) == size and sorted(map(str, got)) == want:
        return "Messages arrive in any order. Receive from rank 1, then rank 2, and so on, or use gather, which sorts."
    if len(got) == size - 1 and got == want[1:]:
        return "Rank 0 is one of the ranks: its own greeting comes first."
    if got == [f"rank {r + 1} of {size}" for r in range(size)]:
        return "Ranks count from 0."
    if got and all(g == want[0] for g in got):
        return (
            "Rank 0's own greeting, again and again: a loop on rank 0 runs on rank 0 only. The others must send theirs."
        )
    if all(isinstance(g, str) and g.endswith(" of 2") for g in got):
        return "The number of ranks is comm.size, not always 2."
    return ""
