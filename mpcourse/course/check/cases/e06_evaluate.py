"""What e06_evaluate is asked: sum over sum, whatever the counts; a ValueError where there is nothing to divide by."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from mpcourse.common.words import named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Finding, Program, on_real, on_virtual
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.rules import Rule, Test, always, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "evaluate"
EPSILONS = [1, *(10.0**-k for k in range(1, 13))]  # what people add to a denominator
Pairs = Sequence[tuple[int, int]]  # correct and count, by rank

# -- inputs --

_ORDINARY = [(7, 12), (1, 40), (30, 31), (2, 5)]
INPUTS = {  # what a case is about, and its pairs for any number of ranks
    "plain": lambda size: _ORDINARY[:size],
    "all right": lambda size: [(5 + r, 5 + r) for r in range(size)],
    "none right": lambda size: [(0, 3 + r) for r in range(size)],
    "empty": lambda size: [(0, 0) if r == 1 else _ORDINARY[r] for r in range(size)],
    "empty first": lambda size: [(0, 0) if r == 0 and size > 1 else _ORDINARY[r] for r in range(size)],
    # 2 ** 24 + 1 has one binary digit more than float32, and 2 ** 24 + 2 has not.
    "float32": lambda size: [((1 << 24) - 3 * (size - 1) + 1, (1 << 24) - 4 * (size - 1) + 2), *[(3, 4)] * (size - 1)],
    "above int32": lambda size: [(3_000_000_000 + r, 4_000_000_001 + 7 * r) for r in range(size)],
    "sums above int32": lambda size: [(1_400_000_000 + r, 2_100_000_001 + r) for r in range(size)],
}


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    others = turned(comm)
    for ranks in (comm, others):
        for case in ("plain", "empty", "float32", "sums above int32"):
            pairs = INPUTS[case](ranks.size)
            if ranks is others and comm.rank == comm.size - 1:
                pairs = [(3, 11)]  # alone, and with numbers that the others do not have
            on_real(answer, ranks, _program(pairs), functools.partial(_judge, pairs))
        on_real(answer, ranks, _program([(0, 0)] * ranks.size), _judge_nothing)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    for case, make in INPUTS.items():
        for size in SIZES:
            if "empty" in case and size == 1:
                continue
            pairs = make(size)
            stumbled = (f"{Facts(0, pairs).share} on all ranks", STUMBLED[case]) if case in STUMBLED else None
            on_virtual(answer, comm, size, _program(pairs), functools.partial(_judge, pairs), stumbled)
    for size in SIZES:
        on_virtual(answer, comm, size, _program([(0, 0)] * size), _judge_nothing, (ERROR, NOTHING))


# -- observation --


def _program(pairs: Pairs) -> Program:
    """Return what evaluate returned; of a ValueError where no rank has examples, its text as ValueError(text)."""
    nothing = not any(count for _, count in pairs)

    def program(own: Answer, comm: Any) -> Any:
        try:
            result = own.call(NAME, comm, *pairs[comm.rank])
        except ValueError as error:
            if not nothing:
                raise
            own.returned()  # the others may have come back without one
            return ValueError(str(error))
        except ZeroDivisionError as error:
            if not nothing or not hasattr(comm, "status_page"):  # virtual ranks explain more
                raise
            own.returned()
            return error
        return result

    return program


@dataclass(frozen=True)
class Facts:
    """What evaluate returned on each rank, seen from `rank`. pairs: (correct, count) by rank; results: by rank."""

    rank: int | None
    pairs: Pairs
    results: Sequence[Any] = ()

    size = property(lambda self: len(self.pairs))
    right = property(lambda self: sum(c for c, _ in self.pairs))
    examples = property(lambda self: sum(n for _, n in self.pairs))
    oracle = property(lambda self: Fraction(self.right, self.examples))
    own = property(lambda self: self.pairs[self.rank])
    shares = property(lambda self: [Fraction(c, n) for c, n in self.pairs if n])
    got = property(lambda self: self.results[self.rank])
    kind = property(lambda self: type(self.got).__name__)
    good = property(lambda self: [r for r, got in enumerate(self.results) if _near(got, self.oracle, 1e-15)])
    raised = property(lambda self: [r for r, got in enumerate(self.results) if isinstance(got, ValueError)])

    def near(self, value: Any, tolerance: float = 1e-12) -> bool:
        """Return whether this rank's result is `value` but for rounding in float64."""
        return _near(self.got, value, tolerance)

    @property
    def without(self) -> int | None:
        """The rank without whose numbers the result would be right."""
        others = [(r, self.right - c, self.examples - n) for r, (c, n) in enumerate(self.pairs)]
        return next((r for r, right, examples in others if examples and self.near(Fraction(right, examples))), None)

    @property
    def in_float32(self) -> bool:
        """Whether the result is the right one as a float32, or a quotient of sums in float32."""
        turns = [[*self.pairs[turn:], *self.pairs[:turn]] for turn in range(self.size)]  # the order rounds, too
        sums = [np.cumsum(np.array(pairs, np.float32), axis=0, dtype=np.float32)[-1] for pairs in turns]
        rounded = self.got == float(np.float32(self.got)) or any(self.near(float(c) / float(n)) for c, n in sums)
        return rounded and self.near(self.oracle, 3e-7)

    @property
    def after_int32(self) -> Fraction:
        """The quotient of sums that have wrapped round in int32."""
        right, examples = np.array([self.right, self.examples]).astype(np.int32)
        return Fraction(int(right), int(examples))

    # What sentences show.

    @property
    def share(self) -> str:
        by_rank = ", ".join(f"{c} of {n}" for c, n in self.pairs)
        return f"{self.right} / {self.examples} = {float(self.oracle)!r}" + (f" ({by_rank})" if self.size > 1 else "")

    shown = property(lambda self: short(self.got))
    good_have = property(lambda self: f"{named(self.good).capitalize()} {'has' if len(self.good) == 1 else 'have'}")
    by_rank = property(lambda self: ", ".join(f"{got!r} on rank {r}" for r, got in enumerate(self.results)))
    who_raised = property(lambda self: named(self.raised))
    who_did_not = property(lambda self: named([r for r in range(self.size) if r not in self.raised]))


def _near(got: Any, want: Any, tolerance: float) -> bool:
    return isinstance(got, float) and math.isclose(got, want, rel_tol=tolerance, abs_tol=1e-300)


def _judge(pairs: Pairs, results: Sequence[Any]) -> Finding | None:
    everyone = [Facts(rank, pairs, results) for rank in range(len(pairs))]
    return judge(TESTS, *everyone) or judge(TOGETHER, Facts(None, pairs, results))


def _judge_nothing(results: Sequence[Any]) -> Finding | None:
    everyone = [Facts(rank, [(0, 0)] * len(results), results) for rank in range(len(results))]
    return judge(NO_EXAMPLES, *[facts for facts in everyone if facts.rank not in facts.raised])


# -- what is said --

EMPTY = "A rank without examples takes part like any other: it adds 0 and 0. Divide once, after both are summed."
INT32 = "Counts may be larger than int32 holds (2147483647): take Python's ints, or int64."
LIKE_ANY = "All right, or none right, is an answer like any other: only a count of 0 on all ranks is an error."
NOTHING = "All ranks see the same sum of counts, 0: each of them raises ValueError after that sum, and none before."
ERROR = "a ValueError on all ranks where no rank has any example"
STUMBLED = {  # why an answer that was right before now raises, or lets ranks wait for each other
    **{"all right": LIKE_ANY, "none right": LIKE_ANY, "empty": EMPTY, "empty first": EMPTY},
    **{"float32": LIKE_ANY, "above int32": INT32, "sums above int32": INT32},
}

WHYS_NONE = [
    Rule(
        "only on some ranks",
        lambda f: f.good,
        "{good_have} it; all ranks need it. reduce and gather bring a result to one rank only: allreduce, allgather.",
    ),
    Rule("nothing returned", always, "Nothing came back: is the share returned?"),
]
WHYS_TYPE = [
    Rule(
        "//",
        lambda f: type(f.got) is int,
        "// divides integers and drops what is behind the point: the share is right / examples.",
    ),
    Rule(
        "float32",
        lambda f: isinstance(f.got, np.floating),
        "That has 24 binary digits. Divide Python's ints, or sum in float64.",
    ),
    Rule("tensor", always, "A float was asked: float(x) or x.item() make one of a tensor or an array."),
]
WHYS_VALUE = [
    Rule("NaN", lambda f: math.isnan(f.got), f"NaN is 0 / 0. {EMPTY}"),
    Rule("infinity", lambda f: math.isinf(f.got), f"That is a division by 0. {EMPTY}"),
    Rule(
        "epsilon in the denominator",
        lambda f: any(f.near(f.right / (f.examples + more), 1e-15) for more in (f.size, *EPSILONS)) and f.right,
        "Something is added to the sum of counts, so that it is never 0. Divide by the sum; first ask if it is 0.",
    ),
    Rule(
        "float32",
        lambda f: f.in_float32,
        "Close, but not the quotient of the two sums: float32 has 24 binary digits, which large counts do not fit "
        "into. Sum ints, or in float64.",
    ),
    Rule(
        "rounded",
        lambda f: any(f.got == round(float(f.oracle), digits) for digits in range(1, 16)),
        "Close, but not the quotient of the two sums: is it rounded? Rounding is for printing.",
    ),
    Rule(
        "own share",
        lambda f: f.size > 1 and f.near(Fraction(*f.own)),
        "That is this rank's own share: sum both numbers over all ranks before you divide.",
    ),
    Rule(
        "mean of shares",
        lambda f: f.near(sum(f.shares) / f.size) or f.near(sum(f.shares) / len(f.shares)),
        "That is the mean of the ranks' shares, in which a rank with few examples counts as much as one with many. "
        "Divide the sum of what was right by the sum of the counts.",
    ),
    Rule(
        "sum of shares",
        lambda f: f.size > 1 and f.near(sum(f.shares)),
        "That is the sum of the ranks' shares. Sum both numbers over all ranks, then divide.",
    ),
    Rule(
        "divided by ranks",
        lambda f: f.near(f.oracle / f.size),
        "Divided by the number of ranks, too: both sums are over all ranks, and nothing is a mean.",
    ),
    Rule(
        "one mean",
        lambda f: f.near(f.oracle * f.size),
        "One of the sums is a mean over ranks, the other is not: divide sum by sum.",
    ),
    Rule(
        "own count",
        lambda f: f.near(Fraction(f.right, f.own[1])),
        "The sum of what was right, divided by this rank's own count: sum the counts over all ranks, too.",
    ),
    Rule(
        "own right answers",
        lambda f: f.near(Fraction(f.own[0], f.examples)),
        "This rank's own right answers, divided by the sum of counts: sum the right answers, too.",
    ),
    Rule(
        "inverse", lambda f: f.near(1 / f.oracle), "That is the count divided by what was right: the other way round."
    ),
    Rule("percent", lambda f: f.near(100 * f.oracle), "That is in percent. A share lies between 0 and 1."),
    Rule("wrong answers", lambda f: f.near(1 - f.oracle), "That is the share of wrong answers."),
    Rule(
        "int32",
        lambda f: f.got < 0 or f.near(f.after_int32),
        "A sum went beyond int32's 2147483647 and came out negative: take Python's ints, or int64.",
    ),
    Rule("whole part", lambda f: f.got == f.oracle // 1, "// drops what is behind the point: divide by /."),
    Rule(
        "counts taken as equal",
        lambda f: f.near(Fraction(f.right, f.own[1] * f.size)),
        "That takes all ranks to have as many examples as this one: sum the counts over all ranks.",
    ),
    Rule(
        "a rank left out",
        lambda f: f.without is not None,
        "Rank {without}'s numbers are missing in both sums: every rank's count, also those of who sums.",
    ),
    Rule(
        "another quotient",
        always,
        "Sum what was right over all ranks, sum the counts over all ranks, and divide one by the other.",
    ),
]
TESTS = [
    Test("None", lambda f: f.got is None, "{share} on rank {rank}", "None", WHYS_NONE),
    Test(
        "type", lambda f: not isinstance(f.got, float), "{share} on rank {rank}", "{shown}, of type {kind}", WHYS_TYPE
    ),
    Test("value", lambda f: f.rank not in f.good, "{share} on rank {rank}", "{shown}", WHYS_VALUE),
]
TOGETHER = [
    Test(
        "other bits",
        lambda f: len(set(f.results)) > 1,
        "the same float on all ranks",
        "{by_rank}",
        "Ranks that divide different sums, or in another order, round differently: let all divide the same two.",
    )
]
NO_EXAMPLES = [
    Test("another error", lambda f: isinstance(f.got, BaseException), ERROR, "{kind}: {got}", NOTHING),
    Test(
        "only on some ranks", lambda f: f.raised, ERROR, "one on {who_raised} only; {shown} on {who_did_not}", NOTHING
    ),
    Test(
        "a number",
        always,
        ERROR,
        "{shown} on {who_did_not}",
        "There is no share of nothing. Whoever reads a number takes it for an accuracy: raise ValueError instead.",
    ),
]
