"""What e11_shard is asked: which elements are whose, for parameters of many kinds."""

import functools
import numbers
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_shards import Kind, Owned, Piece, ShardCase, misconceptions, owned, trained
from mpcourse.course.check.drawn import drawing
from mpcourse.course.check.explain import explanation, gives, holds
from mpcourse.course.check.facts.calls import as_first
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, short

NAME = "shards"
# The first is drawn in a hint.
FIXED = [
    ShardCase((Kind((3,)), Kind((4,)), Kind((3,))), 4),
    ShardCase((Kind((2, 3)), Kind((3,)), Kind((5, 2))), 2),
    ShardCase((Kind((4,)), Kind((2, 2)), Kind((4,))), 3),
    ShardCase((Kind((7,)), Kind((5,))), 5),
    ShardCase((Kind((2, 3)), Kind((4,), frozen=True), Kind((3, 2, 2))), 3),
    ShardCase((Kind((2, 5)), Kind((3,)), Kind((2, 5), of=0), Kind((4,))), 3),
    ShardCase((Kind((5,)), Kind((5,)), Kind((3, 2)), Kind((3, 2))), 4),
    ShardCase((Kind(()), Kind((4,)), Kind(())), 2),
    ShardCase((Kind((4,), frozen=True), Kind((6,)), Kind((4,), True, of=0), Kind((6,), of=1), Kind((1,))), 2),
    ShardCase((Kind((0, 3)), Kind((5,)), Kind((0,)), Kind((6,)), Kind((0,))), 3),
    ShardCase((Kind((2,)), Kind((1,))), 7),
    ShardCase((Kind((40, 3)), Kind((2,)), Kind((1,))), 6),
    ShardCase((Kind((3, 3)), Kind((2,))), 1),
    ShardCase((Kind((3,), frozen=True),), 2),
    ShardCase((Kind((0, 2)),), 3),
    ShardCase((), 3),
]


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Every rank may call this; ranks do not talk."""
    draw = drawing()
    cases = [*FIXED, *(_drawn(draw) for _ in range(15))]
    seen: list[tuple[tuple[ShardCase], Owned]] = []
    stumbled = None
    for case in cases:
        try:
            seen.append(((case,), _asked(answer, case)))
        except Exception as error:  # what came of the cases before says more, if it is wrong
            stumbled = error
            break
    line, wrong = answer.line, [(case, got) for (case,), got in seen if got != owned(case)]
    if wrong:
        case, got = wrong[0]
        rank = next(r for r in range(case.ranks) if got[r] != owned(case)[r])
        why = (
            explanation(misconceptions(), seen, gives())
            or explanation(TESTS, seen, holds)
            or as_first(answer, functools.partial(_right, case=case))
            or _hint([case for case, _ in wrong], got)
        )
        answer.line = line
        raise Wrong(f"{owned(case)[rank]} on rank {rank}, of {case}", short(got[rank], 150), why)
    if stumbled is not None:
        raise stumbled


def _drawn(draw: random.Random) -> ShardCase:
    kinds: list[Kind] = []
    for i in range(draw.randint(1, 6)):
        if kinds and draw.random() < 0.2:
            of = draw.randrange(i)
            of = of if (of_it := kinds[of].of) is None else of_it
            kinds.append(kinds[of]._replace(of=of))
        else:
            shape = tuple(draw.randint(1, 6) for _ in range(draw.randint(0, 3)))
            kinds.append(Kind(shape, frozen=draw.random() < 0.2))
    return ShardCase(tuple(kinds), draw.randint(1, 8))


def _right(answer: Answer, case: ShardCase) -> None:
    """Raise Wrong unless it is."""
    if (got := _asked(answer, case)) != (want := owned(case)):
        raise Wrong(short(want), short(got))


def _asked(answer: Answer, case: ShardCase) -> Owned:
    """What the answer gives for a case, as plain lists of tuples; Wrong if it is of another form."""
    tensors = case.tensors()
    asked = f"a list of {case.ranks} lists of tuples (i, begin, end), of {case}"
    try:
        got = answer.call(NAME, list(tensors), case.ranks)
    except RuntimeError as error:
        if not re.search(r"size of tensor|Boolean value", str(error)):
            raise
        why = (
            "`in`, == and list.index compare tensors element by element, which two of different shapes do not allow, "
            "and which finds equal values, too. Whether two are one object is told by `is`, or by id(p)."
        )
        raise Wrong(asked, f"RuntimeError: {short(str(error), 120)}", why) from None
    except (IndexError, ValueError, TypeError, ZeroDivisionError) as error:
        if any(kind.numel for _, kind in trained(case.kinds)):
            raise
        why = "There may be no element to train. Then every rank owns nothing: an empty list for each of them."
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


def _whole(case: ShardCase, got: Owned) -> bool:
    """Whether each trained parameter is one rank's, as a whole."""
    wanted = [(i, 0, k.numel) for i, k in trained(case.kinds) if k.numel]
    return sorted(piece for row in got for piece in row if piece[2]) == wanted


def _elements(row: Sequence[Piece]) -> list[tuple[int, int]]:
    return [(i, element) for i, begin, end in row for element in range(begin, end)]


def _alike(case: ShardCase, got: Owned) -> bool:
    """Whether each rank owns as many elements as it has to, and each element is owned once."""
    want = owned(case)
    once = {i: i if kind.of is None else kind.of for i, kind in enumerate(case.kinds)}
    every = [sorted((once.get(i), e) for row in rows for i, e in _elements(row)) for rows in (got, want)]
    return every[0] == every[1] and [len(_elements(row)) for row in got] == [len(_elements(row)) for row in want]


def _in_turn(case: ShardCase, got: Owned) -> bool:
    """Whether elements are dealt out one by one."""
    every = [(i, e) for i, k in trained(case.kinds) for e in range(k.numel)]
    return all(sorted(_elements(row)) == every[r :: case.ranks] for r, row in enumerate(got))


_ORDER = "The chunks have the right lengths, and the parameters stand in another order than in the list."
# Where nothing else explains what an answer gives: what can be said of it.
TESTS: dict[str, Callable[[ShardCase, Owned], bool]] = {
    "Empty pieces are listed, whose begin is their end: leave them out. A parameter may have no part in a chunk.": (
        lambda case, got: [[piece for piece in row if piece[1] < piece[2]] for row in got] == owned(case)
    ),
    "The right elements, in other pieces: a rank has one tuple for each parameter of which it owns a part.": (
        lambda case, got: [_elements(row) for row in got] == [_elements(row) for row in owned(case)]
    ),
    "The right pieces, in another order: a rank's pieces are in the order of the buffer.": (
        lambda case, got: [sorted(row) for row in got] == owned(case)
    ),
    "All ranks have the same list: [[]] * ranks is one list that stands there several times. Make one for each.": (
        lambda case, got: all(row == got[0] for row in got)
    ),
    "Rank 0 owns everything: cut the buffer into a chunk for each rank.": lambda case, got: not any(got[1:]),
    "Elements are dealt out in turn, one by one. A rank's elements are a chunk: they follow each other in the buffer, "
    "so that collective calls can send them as they lie.": _in_turn,
    "Whole parameters are dealt out, as torch's ZeroRedundancyOptimizer does. A large one would make one rank's part "
    "large: cut the flat buffer into equal chunks, also within a parameter.": _whole,
    _ORDER: _alike,
}


def _longest(case: ShardCase) -> int:
    """In how many chunks a parameter lies at most."""
    return max(Counter(i for row in owned(case) for i, _, _ in row).values(), default=0)


def _hint(wrong: Sequence[ShardCase], got: Owned) -> str:
    """Where no known mistake gives these pieces: what is wrong about those of the first of the wrong cases."""
    if all(any(kind.of is not None for kind in case.kinds) for case in wrong):
        return (
            "It is right where no parameter is in the list twice. A tied one has its first place in the buffer, where "
            "the others take no elements and leave no gap."
        )
    if all(any(kind.frozen for kind in case.kinds) for case in wrong):
        return "It is right where none is frozen. Which ones are is told by each parameter's own requires_grad."
    if all(_longest(case) > 2 for case in wrong):
        return "It is right where a parameter lies in two chunks at most. A long one may lie in many."
    case = wrong[0]
    numel = {i: k.numel for i, k in enumerate(case.kinds)}
    pieces = [piece for row in got for piece in row]
    for piece in pieces:
        i, begin, end = piece
        if i not in numel or not 0 <= begin < end <= numel[i]:
            has = f"parameter {i} has {numel[i]} elements" if i in numel else f"there is no parameter {i}"
            return f"{piece} is no piece, for {has}: 0 <= begin < end <= p.numel() of parameters[i]."
    times = Counter(element for row in got for element in _elements(row))
    if twice := [element for element, count in times.items() if count > 1]:
        return f"Element {twice[0][1]} of parameter {twice[0][0]} is owned twice. Each element belongs to one rank."
    every = [(i, element) for i, k in trained(case.kinds) for element in range(k.numel)]
    if nobodys := [element for element in every if element not in times]:
        return f"Element {nobodys[0][1]} of parameter {nobodys[0][0]} is nobody's. Each element belongs to one rank."
    for rank, (row, want) in enumerate(zip(got, owned(case), strict=True)):
        owns, should, chunk = len(_elements(row)), len(_elements(want)), -(-len(every) // case.ranks)
        if owns != should:
            return (
                f"Rank {rank} owns {owns} elements, not {should}. All chunks are as long as {len(every)} over "
                f"{case.ranks} rounded up, {chunk}, and the last ones have padding."
            )
    return _ORDER
