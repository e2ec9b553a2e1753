"""What e11_shard is asked: which elements are whose, for parameters of many kinds."""

import functools
import numbers
import random
from collections import Counter

from mpcourse.check.answer import Answer
from mpcourse.check.cases.on_calls import as_first
from mpcourse.check.cases.on_shards import TESTS, Case, Kind, Owned, misconceptions, owned, trained
from mpcourse.check.drawn import drawing
from mpcourse.check.explain import explanation, gives, holds
from mpcourse.check.status_page import HasLogbook
from mpcourse.check.wrong import Wrong, short

NAME = "shards"
# The first is drawn in a hint.
FIXED = [
    Case((Kind((3,)), Kind((4,)), Kind((3,))), 4),
    Case((Kind((2, 3)), Kind((3,)), Kind((5, 2))), 2),
    Case((Kind((4,)), Kind((2, 2)), Kind((4,))), 3),
    Case((Kind((7,)), Kind((5,))), 5),
    Case((Kind((2, 3)), Kind((4,), frozen=True), Kind((3, 2, 2))), 3),
    Case((Kind((2, 5)), Kind((3,)), Kind((2, 5), of=0), Kind((4,))), 3),
    Case((Kind((5,)), Kind((5,)), Kind((3, 2)), Kind((3, 2))), 4),
    Case((Kind(()), Kind((4,)), Kind(())), 2),
    Case((Kind((4,), frozen=True), Kind((6,)), Kind((4,), True, of=0), Kind((6,), of=1), Kind((1,))), 2),
    Case((Kind((0, 3)), Kind((5,)), Kind((0,)), Kind((6,)), Kind((0,))), 3),
    Case((Kind((2,)), Kind((1,))), 7),
    Case((Kind((40, 3)), Kind((2,)), Kind((1,))), 6),
    Case((Kind((3, 3)), Kind((2,))), 1),
    Case((Kind((3,), frozen=True),), 2),
    Case((), 3),
]


def check(answer: Answer, comm: HasLogbook) -> None:
    """Every rank may call this; ranks do not talk."""
    draw = drawing()
    cases = [*FIXED, *(_drawn(draw) for _ in range(15))]
    answers = [_asked(answer, case) for case in cases]
    seen, line = [((case,), got) for case, got in zip(cases, answers, strict=True)], answer.line
    for case, got in zip(cases, answers, strict=True):
        want = owned(case)
        if got == want:
            continue
        answer.line = line
        rank = next(r for r in range(case.ranks) if got[r] != want[r])
        why = (
            as_first(answer, functools.partial(_right, case=case))
            or explanation(misconceptions(), seen, gives())
            or explanation(TESTS, seen, holds)
            or _hint(case, got)
        )
        raise Wrong(f"{want[rank]} on rank {rank}, of {case}", short(got[rank], 150), why)


def _drawn(draw: random.Random) -> Case:
    kinds: list[Kind] = []
    for i in range(draw.randint(1, 6)):
        if kinds and draw.random() < 0.2:
            of = draw.randrange(i)
            of = of if (of_it := kinds[of].of) is None else of_it
            kinds.append(kinds[of]._replace(of=of))
        else:
            shape = tuple(draw.randint(1, 6) for _ in range(draw.randint(0, 3)))
            kinds.append(Kind(shape, frozen=draw.random() < 0.2))
    return Case(tuple(kinds), draw.randint(1, 8))


def _right(answer: Answer, case: Case) -> None:
    """Raise Wrong unless it is."""
    if (got := _asked(answer, case)) != (want := owned(case)):
        raise Wrong(short(want), short(got))


def _asked(answer: Answer, case: Case) -> Owned:
    """What the answer gives for a case, as plain lists of tuples; Wrong if it is of another form."""
    tensors = case.tensors()
    asked = f"a list of {case.ranks} lists of tuples (i, begin, end), of {case}"
    try:
        got = answer.call(NAME, list(tensors), case.ranks)
    except RuntimeError as error:
        why = (
            "`in`, == and list.index compare tensors element by element, which two of different shapes do not allow, "
            "and which finds equal values, too. Whether two are one object is told by `is`, or by id(p)."
        )
        raise Wrong(asked, f"RuntimeError: {short(str(error), 120)}", why) from None
    except (IndexError, ValueError, TypeError, ZeroDivisionError) as error:
        if any(trained(case.kinds)):
            raise
        why = "There may be nothing to train. Then every rank owns nothing: an empty list for each of them."
        raise Wrong(asked, f"{type(error).__name__}: {short(str(error), 120)}", why) from None
    if got is None:
        raise Wrong(asked, "None", "Nothing came back: is the list returned?")
    if not isinstance(got, list) or not all(isinstance(row, list) for row in got):
        raise Wrong(asked, short(got), "Return a list of lists: of each rank, in order, what it owns.")
    if len(got) != case.ranks:
        why = "Every rank has a list, in order. One that owns nothing has an empty one."
        raise Wrong(asked, f"{len(got)} lists", why)
    for piece in (piece for row in got for piece in row):
        whole = isinstance(piece, tuple) and len(piece) == 3
        if not whole or not all(isinstance(n, numbers.Integral) and not isinstance(n, bool) for n in piece):
            why = "A piece is a tuple of three ints: the parameter's number, its first element, its last one plus 1."
            raise Wrong(asked, f"a piece {short(piece)}", why)
    return [[(int(i), int(begin), int(end)) for i, begin, end in row] for row in got]


def _hint(case: Case, got: Owned) -> str:
    """Where no known mistake gives these pieces: what is wrong about them."""
    numel = {i: k.numel for i, k in enumerate(case.kinds)}
    pieces = [piece for row in got for piece in row]
    if any(i not in numel or not 0 <= begin < end <= numel[i] for i, begin, end in pieces):
        return "A piece is p.flatten()[begin:end] of parameter i: 0 <= begin < end <= p.numel()."
    times = Counter((i, element) for i, begin, end in pieces for element in range(begin, end))
    if any(count > 1 for count in times.values()):
        return "Some element is owned twice: each belongs to one rank."
    if len(times) < sum(k.numel for _, k in trained(case.kinds)):
        return "Some element of a trained parameter is nobody's: each belongs to one rank."
    return (
        "The buffer holds trained parameters, each once, in the order of the list. A chunk's length is the number of "
        "elements over the number of ranks, rounded up, and rank r owns the r-th chunk."
    )
