"""What e00_hello is asked: every rank's greeting, sent to rank 0, in a list in the order of ranks."""

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.rules import Rule, Test, always, demand, judge
from mpcourse.course.check.wrong import first_difference, short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

MANY = 12
EAGER = 4096  # bytes of a message that passes before it is asked for, as a greeting does on real ranks


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer; every rank must call this."""
    _greet(answer, comm)
    # Once more with the ranks renumbered, so that only a greeting through `comm` itself comes out right, and with the
    # higher ranks early: a rank 0 that takes messages as they come gets them in the wrong order.
    turned = cast("TracedComm", comm.Split(0, -comm.rank))
    time.sleep(0.05 * (turned.size - turned.rank - 1))
    _greet(answer, turned)
    if comm.size == 1:
        _many(answer, comm)


def _greet(answer: Answer, comm: "TracedComm") -> None:
    comm.made.clear()
    got = answer.call("greet", comm)
    demand(RANK_0 if comm.rank == 0 else OTHER_RANKS, Facts(comm.rank, comm.size, got, answer, comm))


def _many(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on 12 virtual ranks, where texts sort in another order than numbers.

    Also check it where ranks greet with other numbers than rank 0 can guess. Virtual ranks lack a few things of MPI:
    what does not run there is judged by real ranks alone.
    """
    from mpcourse.course.check.virtual_run import OnVirtualRank, on_each, only_real_ranks_judge
    from mpcourse.virtual.ranks.errors import ClusterError

    def honest(own: Answer, comm: Any) -> Any:
        return own.call("greet", comm)

    def renamed(own: Answer, comm: Any) -> Any:
        return own.call("greet", _Renamed(comm, 100 + comm.rank) if comm.rank else comm)

    done = []
    for program in (honest, renamed):
        try:
            done.append(on_each(answer, comm, program, MANY, eager=EAGER))
        except OnVirtualRank as failed:
            kind = failed.error.kind if isinstance(failed.error, ClusterError) else ""
            demand(FAILED, Failed(kind, str(failed.error)))
            if program is renamed or kind == "misuse" or only_real_ranks_judge(failed):
                return
            raise
    ran, other = done
    facts = Facts(0, MANY, ran.results[0], answer, None, other.results[0])
    ran.demand(judge(MANY_RANKS, facts))
    other.demand(judge(RENAMED_RANKS, facts))


class _Renamed:
    """A communicator that gives another number for this rank, and else does what `comm` does."""

    def __init__(self, comm: Any, rank: int) -> None:
        self._comm, self.rank = comm, rank

    def Get_rank(self) -> int:
        return self.rank

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)


# -- facts --


@dataclass(frozen=True)
class Failed:
    """An error of virtual ranks. kind: as ClusterError has it; empty for other errors."""

    kind: str
    text: str
    call = property(lambda self: self.text.partition(":")[0])


@dataclass(frozen=True)
class Facts:
    """What greet returned on `rank`.

    comm: which knows the calls that the rank made; None: virtual ranks. renamed: what greet returned where all ranks
    but 0 had other numbers.
    """

    rank: int
    size: int
    got: Any
    answer: Answer
    comm: "TracedComm | None"
    renamed: Any = None

    want = property(lambda self: [f"rank {rank} of {self.size}" for rank in range(self.size)])
    greetings = property(lambda self: list(self.got) if isinstance(self.got, list | tuple) else self.got)
    difference = property(lambda self: first_difference(self.greetings, self.want, "the list on rank 0"))
    is_list = property(lambda self: isinstance(self.greetings, list))
    is_text = property(lambda self: self.is_list and all(isinstance(g, str) for g in self.greetings))
    has_requests = property(lambda self: any(type(g).__name__ == "Request" for g in self.greetings))
    sends = property(lambda self: any(map(_sends, self.comm.made)) or self.answer.mentions("Win"))
    last = property(lambda self: self.comm.last.text)
    root = property(lambda self: int((re.search(r"root=(\d+)", self.last) or "00")[1]))
    earlier_calls = property(lambda self: self.answer.calls > 1)

    # What sentences show.

    shown = property(lambda self: short(self.got))
    shown_want = property(lambda self: short(self.want, 40))
    first = property(lambda self: repr(self.want[0]))
    asked_list = property(lambda self: self.difference[0])
    got_list = property(lambda self: self.difference[1])
    calls = property(lambda self: f": it called {', '.join(sorted(self.comm.made))}" if self.comm.made else "")

    def all_match(self, pattern: str) -> bool:
        """Return whether each greeting is matched by a pattern."""
        return all(re.fullmatch(pattern, g) for g in self.greetings)


def _sends(call: str) -> bool:
    """Return whether a rank that makes this call may tell rank 0 something."""
    name, _, arguments = call.partition("(")
    if name.lower() in ("bcast", "scatter", "scatterv"):
        return arguments != "root=0)"
    return name.lower() not in ("barrier", "ibarrier", "recv", "irecv", "probe", "mprobe")


# -- what is said --

MADE_UP = "Rank 0 made up what the others say, without a message of theirs, or it came by another way than comm."
OTHER_RANKS = [
    Test(
        "a result",
        lambda f: f.got is not None,
        "None on rank {rank}",
        "{shown}",
        [
            Rule(
                "allgather",
                lambda f: f.got == f.want,
                "Only rank 0 is asked for the list: allgather gives it to every rank, gather to its root alone.",
            ),
            Rule(
                "another result",
                always,
                "The other ranks send their greeting to rank 0 and return None: rank 0 alone returns something, the "
                "list.",
            ),
        ],
    ),
    Test(
        "no message",
        lambda f: not f.sends,
        "a message from rank {rank} to rank 0",
        "rank {rank} sent nothing through comm{calls}",
        [
            Rule(
                "COMM_WORLD",
                lambda f: f.answer.mentions("COMM_WORLD"),
                "It speaks of MPI.COMM_WORLD: use the `comm` it is given, whose ranks may be others.",
            ),
            Rule(
                "calls that carry nothing",
                lambda f: f.comm.made,
                f"{MADE_UP} A Barrier carries nothing, and a broadcast from rank 0 only what rank 0 has.",
            ),
            Rule("made up", always, MADE_UP),
        ],
    ),
]

WHYS_TEXT = [
    Rule(
        "earlier call",
        lambda f: len(f.greetings) > f.size and f.earlier_calls,
        "Greetings of an earlier call are still in the list: a variable outside of the function keeps them.",
    ),
    Rule(
        "too many",
        lambda f: len(f.greetings) > f.size,
        "There are more strings than ranks: the list has one greeting of each rank.",
    ),
    Rule(
        "order",
        lambda f: sorted(f.greetings) == sorted(f.want),
        "These are the greetings, but not in the order of ranks. Receive from rank 1, then 2, and so on, not as "
        "messages arrive; or use gather, which sorts.",
    ),
    Rule(
        "without rank 0",
        lambda f: f.greetings == f.want[1:],
        "Rank 0 is one of the ranks: rank 0's own greeting comes first.",
    ),
    Rule(
        "missing",
        lambda f: len(f.greetings) < f.size and f.greetings == f.want[: len(f.greetings)],
        "Greetings are missing. Ranks share no memory: each of 1 to comm.size - 1 must send its own to rank 0.",
    ),
    Rule(
        "rank 0's only",
        lambda f: f.greetings == f.size * f.want[:1] and f.size > 1,
        "Every entry is rank 0's: what rank 0 computes or broadcasts is its own. The others must send theirs.",
    ),
    Rule(
        "from 1",
        lambda f: f.greetings == [f"rank {rank + 1} of {f.size}" for rank in range(f.size)],
        "Ranks count from 0.",
    ),
    Rule(
        "no f",
        lambda f: any("{" in g for g in f.greetings),
        'Write the f before the string, f"...", or the braces stay as they are.',
    ),
    Rule(
        "method not called",
        lambda f: any("method" in g for g in f.greetings),
        "Call it: Get_rank() and Get_size() with parentheses, or use comm.rank and comm.size.",
    ),
    Rule(
        "another size",
        lambda f: f.all_match(rf"rank \d+ of (?!{f.size}$)\d+"),
        "The last number is comm.size, the number of ranks.",
    ),
    Rule(
        "another text",
        always,
        "The text must be exactly {first}: small letters, single blanks, nothing before or after it.",
    ),
]
WHYS = [
    Rule(
        "another root",
        lambda f: f.got is None and f.root > 0,
        "{last} collects on rank {root}. The list is asked for on rank 0: root=0.",
    ),
    Rule(
        "None",
        lambda f: f.got is None,
        "Nothing came back on rank 0. Is the list printed rather than returned, or collected on another rank?",
    ),
    Rule(
        "one string",
        lambda f: isinstance(f.got, str) and all(greeting in f.got for greeting in f.want) and f.size > 1,
        "All greetings are there, but in one string: return a list of strings.",
    ),
    Rule(
        "scatter",
        lambda f: isinstance(f.got, str) and f.last.lower().startswith("scatter"),
        "Scatter hands out, gather collects: one piece to each rank, or one piece from each.",
    ),
    Rule(
        "one greeting",
        lambda f: isinstance(f.got, str),
        "That is one string. Rank 0 returns the list of all ranks' greetings, which the others must send to it.",
    ),
    Rule("no list", lambda f: not f.is_list, "Return a list of strings."),
    Rule(
        "requests",
        lambda f: f.has_requests,
        "irecv returns a request at once, before the message is there: call wait() on it to get the message.",
    ),
    Rule(
        "no strings",
        lambda f: not f.is_text,
        "Return a list of strings: each element is the greeting itself, nothing around it.",
    ),
    *WHYS_TEXT,
]
RANK_0 = [Test("list", lambda f: f.difference, "{asked_list}", "{got_list}", WHYS)]

FAILED = [
    Test(
        "short buffer",
        lambda f: f.kind == "truncated",
        f"the greetings of {MANY} ranks",
        "{call}",
        "With ten ranks or more a greeting is longer: the buffer must have room for it. send and recv need none.",
    )
]
MANY_RANKS = [
    Test(
        "list of 12 ranks",
        lambda f: f.is_text and f.greetings != f.want,
        "the list on rank 0 in the order of ranks, {shown_want}",
        "{shown}",
        [
            Rule(
                "sorted as text",
                lambda f: f.greetings == sorted(f.want),
                "Sorted as text, 10 comes before 2: sort by the number, or let gather, which sorts by rank, do it.",
            ),
            *WHYS_TEXT,
        ],
    )
]
RENAMED_RANKS = [
    Test(
        "made up",
        lambda f: f.greetings == f.want == list(f.renamed or ()),
        "what the other ranks sent",
        "the same list, whatever they send",
        f"{MADE_UP} What is sent has to be what comes out: here the others greeted with other numbers.",
    )
]
