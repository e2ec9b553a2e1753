"""Sums of an array over ranks: who is in them, whether their values are right, and the same bits on all ranks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.ranks import attributes, rebinds, turned
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import Finding, Rule, Test, always, demand, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import first_difference

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm
    from mpcourse.course.check.virtual_run import Ran

BASE = 16  # rank r's numbers are BASE ** r: the digits of a sum tell how often each rank is in it


def check_virtually(
    answer: Answer,
    comm: HasStatusPage,
    function: str,
    sizes: Sequence[int],
    members: Sequence[Test],
    messages: Callable[["Ran"], Finding | None],
) -> None:
    """Sum arrays of many lengths and dtypes by `function(comm, x)` on virtual ranks.

    sizes: numbers of ranks. members: `tests_of_members`. messages: what is wrong with the messages of a run. Raises
    OnVirtualRank for the first mistake: of who is in a sum, of messages, of values.
    """
    from mpcourse.course.check.virtual_run import virtually

    def run_on(xs: list[np.ndarray], late: Sequence[float] | None = None) -> "Ran":
        return virtually(answer, comm, function, len(xs), lambda rank: (xs[rank].copy(),), lambda given: given, late)

    for size in sizes:
        for n in (4 * size, 4 * size + (size + 1) // 2, size - 1 or 1, 1, 0):
            ran = run_on([np.full(n, float(BASE**rank)) for rank in range(size)])
            ran.demand(judge(members, *[Members(rank, ran, function) for rank in range(size)]) or messages(ran))
        for dtype, tolerance in (("f8", 64 * 2.0**-52), ("f4", 64 * 2.0**-23), ("i8", 0.0), ("i2", 0.0)):
            everyone = [_numbers(rank, size, np.dtype(dtype)) for rank in range(size)]
            ran = run_on(everyone, [float(rank == 1) for rank in range(size)])
            xs = [x for (x,) in ran.given]
            sums = [Values(rank, x, everyone, tolerance, xs) for rank, x in enumerate(xs)]
            ran.demand(judge(VALUES, *sums) or judge(SAME_BITS, *sums) or messages(ran))


def check(answer: Answer, comm: "TracedComm", function: str) -> None:
    """Sum long arrays and short ones by `function(comm, x)` on real ranks; every rank must call this."""
    cases = ((comm, 7, "f8"), (comm, 7, "f8"), (comm, 7, "i8"), (comm, 200_003, "f8"), (turned(comm), 9, "f8"))
    for seed, (ranks, n, dtype) in enumerate(cases):
        everyone = [
            (9 * np.random.default_rng([rank, seed]).standard_normal(n)).astype(dtype) for rank in range(ranks.size)
        ]
        x = everyone[ranks.rank].copy()
        answer.call(function, ranks, x, changes=(x,))
        demand(VALUES, Values(ranks.rank, x, everyone, 1e-12))


def _numbers(rank: int, size: int, dtype: np.dtype) -> np.ndarray:
    random, n = np.random.default_rng([rank, size]), 3 * size + 2
    if rank == 0 and dtype == np.int64:
        return np.zeros(n, dtype)  # that a rank has nothing to add changes nothing
    if dtype.kind == "f":
        return random.standard_normal(n).astype(dtype)
    return random.integers(-4000, 4000, n).astype(dtype)


# -- facts --


def counts(value: float, size: int) -> list[int] | None:
    """Return how often each rank is in a sum; None for what is no sum of their numbers."""
    if not np.isfinite(value) or value != int(value) or not 0 < value < BASE**size:
        return None
    return [int(value) // BASE**r % BASE for r in range(size)]


def members(value: float, size: int) -> str:
    """Return a phrase of who is in a sum of powers of BASE."""
    times = counts(value, size)
    if times is None:
        return f"{float(value)!r}, no sum of the ranks' numbers"
    ranks = [f"rank {r}" + (f" ({c} times)" if c > 1 else "") for r, c in enumerate(times) if c]
    if len(ranks) > 1:
        return f"the sum of {', '.join(ranks[:-1])} and {ranks[-1]}"
    return f"the numbers of {ranks[0]}" + (" alone" if size > 1 and max(times) == 1 else "")


@dataclass(frozen=True)
class Members:
    """Who is in the sums that `function(comm, x)` left in x on `rank`. Each number of rank r was BASE ** r."""

    rank: int
    ran: "Ran"
    function: str

    size = property(lambda self: self.ran.run.size)
    xs = property(lambda self: [x for (x,) in self.ran.given])
    x = property(lambda self: self.xs[self.rank])
    result = property(lambda self: self.ran.results[self.rank])
    want = property(lambda self: float(sum(BASE**rank for rank in range(self.size))))
    wrong = property(lambda self: np.flatnonzero(self.x != self.want))
    times = property(lambda self: [counts(value, self.size) for value in self.x[self.wrong]])
    untouched = property(lambda self: self.is_of(self.rank))
    rebound = property(lambda self: rebinds(self.ran.source, self.function, 1))
    reads_early = property(lambda self: bool({"Irecv", "irecv"} & attributes(self.ran.source)))
    right = property(lambda self: [rank for rank, x in enumerate(self.xs) if (x == self.want).all()])
    received = property(lambda self: self.ran.run.messages[:, self.rank].sum())
    is_mean = property(lambda self: np.allclose(self.x * self.size, self.want, rtol=1e-12, atol=0))

    def is_of(self, rank: int) -> bool:
        """Return whether x holds the numbers of one rank."""
        return bool((self.x == float(BASE**rank)).all())

    @property
    def returned(self) -> bool:
        result = self.result
        return isinstance(result, np.ndarray) and result.shape == self.x.shape and bool((result == self.want).all())

    @property
    def sums_of_two(self) -> bool:
        """Whether any number on any rank is a sum of several ranks' numbers."""
        sums = [counts(value, self.size) for x in self.xs for value in x]
        return any(c and sum(c) > 1 for c in sums)

    # What sentences show.

    first = property(lambda self: int(self.wrong[0]))
    everyone = property(lambda self: f"all {self.size} ranks" if self.size > 1 else "the only rank")
    who_is_right = property(
        lambda self: ("Ranks {} have" if len(self.right) > 1 else "Rank {} has").format(", ".join(map(str, self.right)))
    )

    @property
    def got(self) -> str:
        value, n = self.x[self.first], len(self.x)
        shown = repr(float(value)) if self.is_mean else members(value, self.size)
        return shown + (f" ({len(self.wrong)} of {n} numbers are wrong)" if n > 1 else "")


@dataclass(frozen=True)
class Values:
    """The sums that a call left in x on `rank`.

    everyone: the ranks' numbers before. xs: the sums of all ranks, of virtual ones only.
    """

    rank: int
    x: np.ndarray
    everyone: Sequence[np.ndarray]
    tolerance: float
    xs: Sequence[np.ndarray] = ()

    want = property(lambda self: np.sum(self.everyone, axis=0, dtype=self.x.dtype))
    difference = property(
        lambda self: first_difference(self.x, self.want, f"x on rank {self.rank}", self.tolerance, self.tolerance)
    )
    shorter = property(lambda self: shorter_dtype(self.x, self.want, 2.0**-24 if self.x.itemsize == 4 else 2.0**-53))
    other_bits = property(lambda self: any(self.x.tobytes() != x.tobytes() for x in self.xs[:1]))
    first = property(lambda self: int(np.flatnonzero(self.x != self.xs[0])[0]))

    # What sentences show.

    asked = property(lambda self: self.difference[0])
    got = property(lambda self: self.difference[1])

    @property
    def both(self) -> str:
        zero, here = (x[self.first].item() for x in (self.xs[0], self.x))
        return f"{zero!r} on rank 0, {here!r} on rank {self.rank}"


# -- what is said --


def tests_of_members(twice: str, fewer: str, missing: str) -> list[Test]:
    """Return the tests of who is in a sum.

    twice, fewer, missing: what to say where ranks are in a sum more than once; where it is wrong only for arrays of
    fewer numbers than ranks; and where ranks are missing.
    """
    whys = [
        Rule(
            "returned",
            lambda f: f.returned,
            "The sum was returned, and x is as it was: write it into x, as x[:] = ... or x += ... do.",
        ),
        Rule("mean", lambda f: f.is_mean, "That is the mean: do not divide by the number of ranks."),
        Rule(
            "no sum",
            lambda f: any(times is None for times in f.times),
            "Was a buffer read before its message was there, or was something else than sums added?",
        ),
        Rule(
            "sum of x",
            lambda f: all(times == [len(f.x)] * f.size for times in f.times),
            "That adds up the numbers of x, too. The sum is over ranks, number by number.",
        ),
        Rule("twice", lambda f: any(max(times) > 1 for times in f.times), twice),
        Rule("only on some ranks", lambda f: f.right, "{who_is_right} the sum; all ranks need it. " + missing),
        Rule("fewer numbers than ranks", lambda f: len(f.x) < f.size, fewer),
        Rule(
            "rest in no chunk",
            lambda f: len(f.wrong) < f.size and len(f.x) % f.size and f.wrong[0] == len(f.x) - len(f.wrong),
            "The last numbers are in no chunk: p need not divide the length. Some chunks are one number longer.",
        ),
        Rule(
            "x bound anew",
            lambda f: f.untouched and f.rebound,
            "x is as it was. x = x + y makes a new array; x += y and x[:] = ... write into the old one.",
        ),
        Rule(
            "read before Wait",
            lambda f: f.untouched and f.reads_early,
            "x is as it was. What an Irecv brings is there when its Wait has returned, and not before.",
        ),
        Rule(
            "no message",
            lambda f: f.untouched and not f.received,
            "x is as it was, and no message came to rank {rank}. " + missing,
        ),
        Rule(
            "x as it was",
            lambda f: f.untouched,
            "x is as it was. Was the sum written into a copy of x? x += y and x[:] = ... write into x itself.",
        ),
        Rule(
            "another rank's numbers",
            lambda f: any(f.is_of(rank) for rank in range(f.size)),
            "What arrived was put in the place of x. Receive it into an array of its own, and add that: x += y.",
        ),
        Rule(
            "no sums",
            lambda f: not f.sums_of_two,
            "In the end no x holds a sum of two ranks. Was it added into x (x += y does that, x = x + y makes a new "
            "array)? Or did a later step put something else in its place?",
        ),
        Rule("missing", always, missing),
    ]
    asked = "x[{first}] on rank {rank} to be the sum of {everyone}, each once"
    return [Test("members", lambda f: len(f.wrong), asked, "{got}", whys)]


WHYS_VALUE = [
    Rule(
        "shorter dtype",
        lambda f: f.shorter,
        "Close, but rounded as {shorter} rounds: numbers are sent and added in x's own dtype.",
    ),
    Rule(
        "only on real ranks",
        lambda f: not f.xs,
        "It is right on virtual ranks, which send nothing before it is sure. Is each request waited for?",
    ),
    Rule(
        "another place",
        always,
        "Each number has its place: is a chunk added to another one's place, or a buffer of another dtype?",
    ),
]
VALUES = [Test("value", lambda f: f.difference, "{asked}", "{got}", WHYS_VALUE)]
SAME_BITS = [
    Test(
        "other bits",
        lambda f: f.other_bits,
        "the same bits of x[{first}] on all ranks",
        "{both}",
        "Rounding depends on the order of additions: let one rank add up a number and copy it to the others.",
    )
]
BY_HAND = Test(
    "a collective call",
    lambda f: not f.ran.run.traffic.any(),
    "messages between ranks",
    "none: a collective call did it",
    "comm.Allreduce and its like do it for you. Here it is done by hand: Send, Recv, Sendrecv, Isend, Irecv.",
)
