"""What checks of exercises between ranks share: virtual ranks first, then real ones; sums told by who is in them."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, first_difference

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm
    from mpcourse.course.check.virtual_run import Ran

COLLECTIVE = "comm.Allreduce and its like do it for you. Here it is done by hand: Send, Recv, Sendrecv, Isend, Irecv."
BASE = 16  # rank r's numbers are BASE ** r: the digits of a sum tell how often each rank is in it


def turned(comm: "TracedComm") -> "TracedComm":
    """All ranks but the last, in the opposite order; the last one alone. All ranks must call this.

    There, only what goes through the `comm` that is given comes out right.
    """
    return cast("TracedComm", comm.Split(int(comm.rank == comm.size - 1), -comm.rank))


def on_virtual_ranks(
    answer: Answer,
    comm: HasStatusPage,
    function: str,
    judge: Callable[["Ran"], None],
    missing: str,
    twice: str,
    sizes: tuple[int, ...],
) -> None:
    """Sum arrays of many lengths and dtypes by `function(comm, x)` on virtual ranks; `judge(ran)` looks at messages.

    missing, twice: what to say where ranks are not in a sum, or more than once. sizes: numbers of ranks. Raises what
    tells the first mistake: of who is in a sum, of messages, of values.
    """
    for size in sizes:
        for n in (4 * size, 4 * size + (size + 1) // 2, size - 1 or 1, 1, 0):
            judge(_who(answer, comm, function, size, n, missing, twice))
        for dtype in ("f8", "f4", "i8", "i2"):
            judge(_values(answer, comm, function, size, 3 * size + 2, np.dtype(dtype)))


def pickles(ran: "Ran") -> bool:
    """Whether the learner's file calls methods that pickle what they send."""
    return re.search(r"\.(i?s?send|sendrecv)\(", ran.source) is not None


def _who(answer: Answer, comm: HasStatusPage, function: str, size: int, n: int, missing: str, twice: str) -> "Ran":
    """Every rank's numbers are a power of BASE."""
    from mpcourse.course.check.virtual_run import virtually

    ran = virtually(
        answer, comm, function, size, lambda rank: (np.full(n, float(BASE**rank)),), changes=lambda given: given
    )
    want = float(sum(BASE**rank for rank in range(size)))
    for rank, (x,) in enumerate(ran.given):
        wrong = np.flatnonzero(x != want)
        if len(wrong):
            i = int(wrong[0])
            ranks = f"all {size} ranks" if size > 1 else "the only rank"
            asked = f"x[{i}] on rank {rank} to be the sum of {ranks}, each once"
            got = members(x[i], size) + (f" ({len(wrong)} of {n} numbers are wrong)" if n > 1 else "")
            raise ran.wrong(rank, asked, got, _why(ran, rank, want, twice, missing))
    return ran


def members(value: float, size: int) -> str:
    """Who is in a sum of powers of BASE."""
    times = counts(value, size)
    if times is None:
        return f"{float(value)!r}, no sum of the ranks' numbers"
    ranks = [f"rank {r}" + (f" ({c} times)" if c > 1 else "") for r, c in enumerate(times) if c]
    if len(ranks) > 1:
        return f"the sum of {', '.join(ranks[:-1])} and {ranks[-1]}"
    return f"the numbers of {ranks[0]}" + (" alone" if size > 1 and max(times) == 1 else "")


def counts(value: float, size: int) -> list[int] | None:
    """How often each rank is in a sum; None for what is no sum of their numbers."""
    if not np.isfinite(value) or value != int(value) or not 0 < value < BASE**size:
        return None
    return [int(value) // BASE**r % BASE for r in range(size)]


def _why(ran: "Ran", rank: int, want: float, twice: str, missing: str) -> str:
    """The misconception behind sums on `rank` in which not every rank is once."""
    size, (x,), result = ran.run.size, ran.given[rank], ran.results[rank]
    wrong = np.flatnonzero(x != want)
    times = [counts(value, size) for value in x[wrong]]
    right = [r for r, (y,) in enumerate(ran.given) if (y == want).all()]
    if isinstance(result, np.ndarray) and result.shape == x.shape and (result == want).all():
        return "The sum was returned, and x is as it was: write it into x, as x[:] = ... or x += ... do."
    if np.allclose(x * size, want):
        return "That is the mean: do not divide by the number of ranks."
    if any(c is None for c in times):
        return "Was a buffer read before its message was there, or was something else than sums added?"
    if all(c == [len(x)] * size for c in times):
        return "That adds up the numbers of x, too. The sum is over ranks, number by number."
    if any(max(c) > 1 for c in times if c):
        return twice
    if right:
        names = ", ".join(map(str, right))
        has = f"Ranks {names} have" if len(right) > 1 else f"Rank {names} has"
        return f"{has} the sum; all ranks need it. {missing}"
    if len(x) < size:
        return "Fewer numbers than ranks: some chunks are empty, and the others have to be summed all the same."
    if len(wrong) < size and len(x) % size and wrong[0] == len(x) - len(wrong):
        return "The last numbers are in no chunk: p need not divide the length. Some chunks are one number longer."
    if (x == float(BASE**rank)).all():
        return (
            "x is as it was. x = x + y makes a new array; x += y and x[:] = ... write into the old one. What an Irecv "
            "brings is there when its Wait has returned, and not before."
        )
    if any((x == float(BASE**other)).all() for other in range(size)):
        return "What arrived was put in the place of x. Receive it into an array of its own, and add that: x += y."
    sums = [counts(value, size) for (y,) in ran.given for value in y]
    if not any(c and sum(c) > 1 for c in sums):
        return (
            "In the end no x holds a sum of two ranks. Was it added into x (x += y does that, x = x + y makes a new "
            "array)? Or did a later step put something else in its place?"
        )
    return missing


def _values(answer: Answer, comm: HasStatusPage, function: str, size: int, n: int, dtype: np.dtype) -> "Ran":
    """Every number its own; the same bits on all ranks."""
    from mpcourse.course.check.virtual_run import virtually

    def numbers(rank: int) -> np.ndarray:
        random = np.random.default_rng([rank, size])
        if rank == 0 and dtype == np.int64:
            return np.zeros(n, dtype)  # that somebody has nothing to add changes nothing
        if dtype.kind == "f":
            return random.standard_normal(n).astype(dtype)
        return random.integers(-4000, 4000, n).astype(dtype)

    late = [float(rank == 1) for rank in range(size)]
    ran = virtually(answer, comm, function, size, lambda rank: (numbers(rank),), lambda given: given, late)
    want = np.sum([numbers(rank) for rank in range(size)], axis=0, dtype=dtype)
    tolerance = 64 * np.finfo(dtype).eps if dtype.kind == "f" else 0.0
    for rank, (x,) in enumerate(ran.given):
        difference = first_difference(x, want, f"x on rank {rank}", tolerance, tolerance)
        if difference:
            why = "Each number has its place: is a chunk added to another one's place, or a buffer of another dtype?"
            raise ran.wrong(rank, *difference, why)
    for rank, (x,) in enumerate(ran.given):
        if x.tobytes() != ran.given[0][0].tobytes():
            i = int(np.flatnonzero(x != ran.given[0][0])[0])
            why = "Rounding depends on the order of additions: let one rank add up a number and copy it to the others."
            got = f"{ran.given[0][0][i].item()!r} on rank 0, {x[i].item()!r} on rank {rank}"
            raise ran.wrong(rank, f"the same bits of x[{i}] on all ranks", got, why)
    return ran


def on_real_ranks(answer: Answer, comm: "TracedComm", function: str) -> None:
    """Sums of long arrays and of short ones; every rank must call this."""
    cases = ((comm, 7, "f8"), (comm, 7, "f8"), (comm, 7, "i8"), (comm, 200_003, "f8"), (turned(comm), 9, "f8"))
    for seed, (ranks, n, dtype) in enumerate(cases):
        everyone = [
            (9 * np.random.default_rng([rank, seed]).standard_normal(n)).astype(dtype) for rank in range(ranks.size)
        ]
        x = everyone[ranks.rank].copy()
        answer.call(function, ranks, x, changes=(x,))
        want = np.sum(everyone, axis=0)
        difference = first_difference(x, want, f"x on rank {ranks.rank}", 1e-12, 1e-12)
        if difference:
            why = "It is right on virtual ranks, which send nothing before it is sure. Is each request waited for?"
            raise Wrong(*difference, why)
