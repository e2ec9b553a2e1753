"""What e06_evaluate is asked: sum over sum, whatever the counts; a ValueError where there is nothing to divide by."""

import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from mpcourse.common.words import named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Finding, Program, on_real, on_virtual
from mpcourse.course.check.cases.on_ranks import turned
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "evaluate"
Pairs = Sequence[tuple[int, int]]  # correct and count, by rank

_ORDINARY = [(7, 12), (1, 40), (30, 31), (2, 5)]
_EMPTY = "A rank without examples takes part like any other: it adds 0 and 0. Divide once, after both are summed."
_EXAMPLES = {  # what a case is about, and its pairs for any number of ranks
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
    """On real ranks, every one of which must call this."""
    others = turned(comm)
    for ranks in (comm, others):
        for case in ("plain", "empty", "float32", "sums above int32"):
            pairs = _EXAMPLES[case](ranks.size)
            if ranks is others and comm.rank == comm.size - 1:
                pairs = [(3, 11)]  # alone, and with numbers that the others do not have
            on_real(answer, ranks, _program(pairs), functools.partial(_judge, pairs))
        on_real(answer, ranks, _program([(0, 0)] * ranks.size), _judge_nothing)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for case, make in _EXAMPLES.items():
        for size in SIZES:
            if "empty" in case and size == 1:
                continue
            pairs = make(size)
            stumbled = None if case == "plain" else (f"{_asked(pairs)} on all ranks", _why_stumbled(case))
            on_virtual(answer, comm, size, _program(pairs), functools.partial(_judge, pairs), stumbled)
    for size in SIZES:
        stumbled = ("a ValueError on all ranks where no rank has any example", _NOTHING)
        on_virtual(answer, comm, size, _program([(0, 0)] * size), _judge_nothing, stumbled)


_NOTHING = "All ranks see the same sum of counts, 0: each of them raises ValueError after that sum, and none before."


def _program(pairs: Pairs) -> Program:
    """What evaluate returned; of a ValueError where no rank has examples, its text as ValueError(text)."""
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
            if not nothing or not hasattr(comm, "status_page"):  # virtual ranks are told more
                raise
            own.returned()
            return error
        return result

    return program


def _why_stumbled(case: str) -> str:
    if "empty" in case:
        return _EMPTY
    if "int32" in case:
        return "Counts may be larger than int32 holds (2147483647): take Python's ints, or int64."
    return "All right, or none right, is an answer like any other: only a count of 0 on all ranks is an error."


def _judge_nothing(results: Sequence[Any]) -> Finding | None:
    wrong = [r for r, result in enumerate(results) if not isinstance(result, ValueError)]
    if not wrong:
        return None
    asked, rank = "a ValueError on all ranks where no rank has any example", wrong[0]
    got = results[rank]
    if isinstance(got, BaseException):
        return Finding(rank, asked, f"{type(got).__name__}: {got}", _NOTHING)
    if len(wrong) < len(results):
        right = named([r for r in range(len(results)) if r not in wrong])
        return Finding(rank, asked, f"one on {right} only; {short(got)} on {named(wrong)}", _NOTHING)
    why = "There is no share of nothing. Whoever reads a number takes it for an accuracy: raise ValueError instead."
    return Finding(rank, asked, f"{short(got)} on {named(wrong)}", why)


def _asked(pairs: Pairs) -> str:
    right, examples = sum(c for c, _ in pairs), sum(n for _, n in pairs)
    by_rank = ", ".join(f"{c} of {n}" for c, n in pairs)
    return f"{right} / {examples} = {right / examples!r}" + (f" ({by_rank})" if len(pairs) > 1 else "")


def _judge(pairs: Pairs, results: Sequence[Any]) -> Finding | None:
    right, examples = sum(c for c, _ in pairs), sum(n for _, n in pairs)
    want = right / examples
    good = [r for r, result in enumerate(results) if _is(result, want, 1e-15) and isinstance(result, float)]
    for rank, got in enumerate(results):
        if rank in good:
            continue
        asked = f"{_asked(pairs)} on rank {rank}"
        if got is None:
            return Finding(rank, asked, "None", _why_none(good))
        if not isinstance(got, float):
            whole = isinstance(got, int) and not isinstance(got, bool)
            why = "A float was asked: float(x) or x.item() make one of a tensor or an array."
            if whole:
                why = "// divides integers and drops what is behind the point: the share is right / examples."
            elif isinstance(got, np.floating):
                why = "That has 24 binary digits. Divide Python's ints, or sum in float64."
            return Finding(rank, asked, f"{short(got)}, of type {type(got).__name__}", why)
        return Finding(rank, asked, repr(float(got)), _why(pairs, rank, float(got)))
    if len({float(result) for result in results}) > 1:
        got = ", ".join(f"{float(result)!r} on rank {r}" for r, result in enumerate(results))
        why = "Ranks that divide different sums, or in another order, round differently: let all divide the same two."
        return Finding(None, "the same float on all ranks", got, why)
    return None


def _why_none(good: list[int]) -> str:
    if good:
        has = f"{named(good).capitalize()} {'has' if len(good) == 1 else 'have'} it"
        return f"{has}; all ranks need it. reduce and gather bring a result to one rank only: allreduce, allgather."
    return "Nothing came back: is the share returned?"


def _is(got: Any, want: float, tolerance: float = 1e-12) -> bool:
    return isinstance(got, (int, float, np.number)) and math.isclose(got, want, rel_tol=tolerance, abs_tol=1e-300)


def _why(pairs: Pairs, rank: int, got: float) -> str:
    """The misconception behind a share that is wrong."""
    size, (own, own_count) = len(pairs), pairs[rank]
    right, examples = sum(c for c, _ in pairs), sum(n for _, n in pairs)
    want = Fraction(right, examples)
    shares = [Fraction(c, n) for c, n in pairs if n]

    def near(value: Any) -> bool:
        return _is(got, float(value))

    if math.isnan(got):
        return f"NaN is 0 / 0. {_EMPTY}"
    if math.isinf(got):
        return f"That is a division by 0. {_EMPTY}"
    if size > 1 and own_count and near(Fraction(own, own_count)):
        return "That is this rank's own share: sum both numbers over all ranks before you divide."
    if near(sum(shares) / size) or near(sum(shares) / len(shares)):
        return (
            "That is the mean of the ranks' shares, in which a rank with few examples counts as much as one with many. "
            "Divide the sum of what was right by the sum of the counts."
        )
    if size > 1 and near(sum(shares)):
        return "That is the sum of the ranks' shares. Sum both numbers over all ranks, then divide."
    if near(want / size):
        return "Divided by the number of ranks, too: both sums are over all ranks, and nothing is a mean."
    if near(want * size):
        return "One of the sums is a mean over ranks, the other is not: divide sum by sum."
    if own_count and near(Fraction(right, own_count)):
        return "The sum of what was right, divided by this rank's own count: sum the counts over all ranks, too."
    if near(Fraction(own, examples)):
        return "This rank's own right answers, divided by the sum of counts: sum the right answers, too."
    if right and near(1 / want):
        return "That is the count divided by what was right: the other way round."
    if near(want * 100):
        return "That is in percent. A share lies between 0 and 1."
    if near(1 - want):
        return "That is the share of wrong answers."
    wrapped = [int(np.array([value]).astype(np.int32)[0]) for value in (right, examples)]
    if wrapped[1] and wrapped != [right, examples] and near(Fraction(*wrapped)) or got < 0:
        return "A sum went beyond int32's 2147483647 and came out negative: take Python's ints, or int64."
    if got == want // 1:
        return "// drops what is behind the point: divide by /."
    if own_count and near(Fraction(right, own_count * size)):
        return "That takes all ranks to have as many examples as this one: sum the counts over all ranks."
    for r, (c, n) in enumerate(pairs):
        if examples > n and near(Fraction(right - c, examples - n)):
            return f"Rank {r}'s numbers are missing in both sums: every rank's count, also those of who sums."
    if right and any(near(right / (examples + more)) for more in (1, size, *(10.0**-k for k in range(1, 13)))):
        return (
            "Something is added to the sum of counts, so that it is never 0. Divide by the sum; first ask if it is 0."
        )
    if _is(got, float(want), 3e-7) and _by_float32(pairs, got):
        return (
            "Close, but not the quotient of the two sums: float32 has 24 binary digits, which large counts do not fit "
            "into. Sum ints, or in float64."
        )
    if _is(got, float(want), 1e-2):
        return "Close, but not the quotient of the two sums: is it rounded? Rounding is for printing."
    return "Sum what was right over all ranks, sum the counts over all ranks, and divide one by the other."


def _by_float32(pairs: Pairs, got: float) -> bool:
    """Whether the quotient is a float32, or one of sums that are."""
    if float(np.float32(got)) == got:
        return True
    for turn in range(len(pairs)):  # in which order a sum is rounded depends on who begins
        right, examples = np.float32(0), np.float32(0)
        for correct, count in [*pairs[turn:], *pairs[:turn]]:
            right, examples = right + np.float32(correct), examples + np.float32(count)
        if _is(got, float(right) / float(examples)):
            return True
    return False
