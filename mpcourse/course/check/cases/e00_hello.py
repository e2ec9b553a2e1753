"""What e00_hello is asked."""

import re
import time
from typing import TYPE_CHECKING, Any, cast

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.wrong import Wrong, same, short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

MANY = 12
EAGER = 4096  # bytes of a message that passes before it is asked for, as a greeting does on real ranks
MADE_UP = "Rank 0 made up what the others say, without a message of theirs, or it came by another way than comm."


def check(answer: Answer, comm: "TracedComm") -> None:
    """Every rank must call this."""
    _greet(answer, comm)
    # Once more with the ranks renumbered, so that only a greeting through `comm` itself comes out right, and with the
    # higher ranks early: a rank 0 that takes messages as they come gets them in the wrong order.
    turned = cast("TracedComm", comm.Split(0, -comm.rank))
    time.sleep(0.05 * (turned.size - turned.rank - 1))
    _greet(answer, turned)
    if comm.size == 1:
        _many(answer, comm)


def _greet(answer: Answer, comm: "TracedComm") -> None:
    rank, size = comm.rank, comm.size
    comm.made.clear()
    got = answer.call("greet", comm)
    want = [f"rank {r} of {size}" for r in range(size)]
    if rank > 0:
        if got is not None:
            raise Wrong(f"None on rank {rank}", short(got), _why_not_none(got, want))
        if not any(map(_sends, comm.made)) and not answer.mentions("Win"):  # which takes messages of its own
            sent, why = f"rank {rank} sent nothing through comm", MADE_UP
            if comm.made:
                sent += f": it called {', '.join(sorted(comm.made))}"
                why = f"{MADE_UP} A Barrier carries nothing, and a broadcast from rank 0 only what rank 0 has."
            if answer.mentions("COMM_WORLD"):
                why = "It speaks of MPI.COMM_WORLD: use the `comm` it is given, whose ranks may be others."
            raise Wrong(f"a message from rank {rank} to rank 0", sent, why)
        return
    same(
        list(got) if isinstance(got, tuple) else got, want, "the list on rank 0", _why(got, want, size, comm.last.text)
    )


def _sends(call: str) -> bool:
    """Whether a rank that makes this call may tell rank 0 something."""
    name, _, arguments = call.partition("(")
    if name.lower() in ("bcast", "scatter", "scatterv"):
        return arguments != "root=0)"
    return name.lower() not in ("barrier", "ibarrier", "recv", "irecv", "probe", "mprobe")


class _Renamed:
    """A communicator that gives another number for this rank, and else does what `comm` does."""

    def __init__(self, comm: Any, rank: int) -> None:
        self._comm, self.rank = comm, rank

    def Get_rank(self) -> int:
        return self.rank

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)


def _many(answer: Answer, comm: "TracedComm") -> None:
    """On 12 virtual ranks, where text has another order than numbers; and where ranks greet with other numbers than
    rank 0 can guess. Virtual ranks lack a few things of MPI: what does not run there is judged by real ranks alone.
    """
    from mpcourse.course.check.virtual_run import OnVirtualRank, on_each
    from mpcourse.virtual.ranks.errors import ClusterError
    from mpcourse.virtual.ranks.refused import NotOffered

    def honest(own: Answer, comm: Any) -> Any:
        return own.call("greet", comm)

    def renamed(own: Answer, comm: Any) -> Any:
        return own.call("greet", _Renamed(comm, 100 + comm.rank) if comm.rank else comm)

    want = [f"rank {r} of {MANY}" for r in range(MANY)]
    done = []
    for program in (honest, renamed):
        try:
            done.append(on_each(answer, comm, program, MANY, eager=EAGER))
        except OnVirtualRank as failed:
            kind = failed.error.kind if isinstance(failed.error, ClusterError) else ""
            if kind == "truncated":
                why = (
                    "With ten ranks or more a greeting is longer: the buffer must have room for it. send and recv need "
                    "none."
                )
                raise Wrong(f"the greetings of {MANY} ranks", str(failed.error).partition(":")[0], why) from None
            if program is renamed or kind == "misuse" or isinstance(failed.error, NotOffered):
                return
            raise
    many, other = done
    got = many.results[0]
    if isinstance(got, list | tuple) and list(got) != want and all(isinstance(g, str) for g in got):
        why = _why_text(list(got), want, MANY)
        if list(got) == sorted(want):
            why = "Sorted as text, 10 comes before 2: sort by the number, or let gather, which sorts by rank, do it."
        raise many.wrong(0, f"the list on rank 0 in the order of ranks, {short(want, 40)}", short(got), why)
    if list(got or ()) == want == list(other.results[0] or ()):
        why = f"{MADE_UP} What is sent has to be what comes out: here the others greeted with other numbers."
        raise other.wrong(0, "what the other ranks sent", "the same list, whatever they send", why)


def _why_not_none(got: object, want: list[str]) -> str:
    if got == want:
        return "Only rank 0 is asked for the list: allgather gives it to every rank, gather to its root alone."
    return "The other ranks send their greeting to rank 0 and return None: rank 0 alone returns something, the list."


def _why(got: object, want: list[str], size: int, last: str) -> str:
    """The misconception behind a wrong result on rank 0, whose last call through comm was `last`."""
    root = re.search(r"root=([1-9]\d*)", last)
    if got is None and root:
        return f"{last} collects on rank {root[1]}. The list is asked for on rank 0: root=0."
    if got is None:
        return "Nothing came back on rank 0. Is the list printed rather than returned, or collected on another rank?"
    if isinstance(got, str):
        if all(greeting in got for greeting in want) and size > 1:
            return "All greetings are there, but in one string: return a list of strings."
        if last.lower().startswith("scatter"):
            return "Scatter hands out, gather collects: one piece to each rank, or one piece from each."
        return "That is one string. Rank 0 returns the list of all ranks' greetings, which the others must send to it."
    if not isinstance(got, list | tuple):
        return "Return a list of strings."
    if any(type(g).__name__ == "Request" for g in got):
        return "irecv returns a request at once, before the message is there: call wait() on it to get the message."
    if not all(isinstance(g, str) for g in got):
        return "Return a list of strings: each element is the greeting itself, nothing around it."
    return _why_text(list(got), want, size)


def _why_text(got: list[str], want: list[str], size: int) -> str:
    """What is wrong with a list of strings that are not the greetings of `size` ranks."""
    if len(got) > size:
        return "Greetings of an earlier call are still in the list: a variable outside of the function keeps them."
    if len(got) == size and sorted(got) == sorted(want):
        return (
            "These are the greetings, but not in the order of ranks. Receive from rank 1, then 2, and so on, not as "
            "messages arrive; or use gather, which sorts."
        )
    if got == want[1:]:
        return "Rank 0 is one of the ranks: rank 0's own greeting comes first."
    if len(got) < size and got == want[: len(got)]:
        return "Greetings are missing. Ranks share no memory: each of 1 to comm.size - 1 must send its own to rank 0."
    if len(got) == size > 1 and all(g == want[0] for g in got):
        return "Every entry is rank 0's: what rank 0 computes or broadcasts is its own. The others must send theirs."
    if got == [f"rank {r + 1} of {size}" for r in range(size)]:
        return "Ranks count from 0."
    if any("{" in g for g in got):
        return 'Write the f before the string, f"...", or the braces stay as they are.'
    if any("method" in g for g in got):
        return "Call it: Get_rank() and Get_size() with parentheses, or use comm.rank and comm.size."
    if all(g.startswith("rank ") and not g.endswith(f" of {size}") for g in got) and all(g.strip() == g for g in got):
        return "The last number is comm.size, the number of ranks."
    return f"The text must be exactly {want[0]!r}: small letters, single blanks, nothing before or after it."
