"""What e11_shard is asked: which elements are whose, for parameters of many kinds."""

import functools
import itertools
import numbers
import operator
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.explain import explanation, gives
from mpcourse.course.check.facts.calls import as_first
from mpcourse.course.check.rules import Rule, Test, always, judge
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, short

NAME = "shards"
STUMBLES = (RuntimeError, LookupError, ValueError, TypeError, ArithmeticError)
Piece = tuple[int, int, int]
Owned = list[list[Piece]]
Place = tuple[int, int, int]  # a parameter's number, and where it begins and ends in the buffer

# -- inputs --


class Kind(NamedTuple):
    """A tensor of the list. of: the number of the one that it is, if it was in the list before."""

    shape: tuple[int, ...]
    frozen: bool = False
    of: int | None = None

    @property
    def numel(self) -> int:
        return torch.Size(self.shape).numel()

    def __str__(self) -> str:
        if self.of is not None:
            return f"number {self.of} again"
        return str(self.shape) + (" frozen" if self.frozen else "")


class ShardCase(NamedTuple):
    """The arguments: tensors of these kinds, all with equal values, and a number of ranks.

    views: whether all tensors are views of one, which begin at the same place in memory.
    """

    kinds: tuple[Kind, ...]
    ranks: int
    views: bool = False

    def __str__(self) -> str:
        text = f"shards([{', '.join(map(str, self.kinds))}], {self.ranks})"
        return text + (", all views of one tensor" if self.views else "")

    def tensors(self) -> list[torch.Tensor]:
        row = torch.ones(max((kind.numel for kind in self.kinds), default=0))
        made: list[torch.Tensor] = []
        for kind in self.kinds:
            if kind.of is not None:
                made.append(made[kind.of])
                continue
            new = row[: kind.numel].view(kind.shape).detach() if self.views else torch.ones(kind.shape)
            made.append(new.requires_grad_(not kind.frozen))
        return made


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
    ShardCase((Kind((2,)), Kind((6,)), Kind((2, 2))), 2, views=True),
]


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


# -- what right and wrong programs give --


class Part(NamedTuple):
    """One part of the answer: how it is computed, and, of a wrong one, what is wrong about it."""

    value: Callable[..., Any]
    why: str = ""


def _side_by_side(numels: Sequence[tuple[int, int]]) -> list[Place]:
    """Return places of (number, elements), one after the other."""
    ends = list(itertools.accumulate(n for _, n in numels))
    return [(i, end - n, end) for (i, n), end in zip(numels, ends, strict=True)]


def trained(kinds: Sequence[Kind]) -> list[tuple[int, Kind]]:
    """Return the trained ones, each once."""
    return [(i, k) for i, k in enumerate(kinds) if k.of is None and not k.frozen]


def _last(kinds: Sequence[Kind]) -> Iterator[tuple[int, int]]:
    """The trained ones, each where it stands last."""
    own = [i if k.of is None else k.of for i, k in enumerate(kinds)]
    for i, number in enumerate(own):
        if number not in own[i + 1 :] and not kinds[number].frozen:
            yield i, kinds[number].numel


def _last_number(kinds: Sequence[Kind], i: int) -> int:
    """Where the tensor with the number i stands last."""
    return max(j for j, k in enumerate(kinds) if i in (j, k.of))


def _filled(k: Kind) -> bool:
    return k.numel > 0


def _frozen(kinds: Sequence[Kind], k: Kind) -> bool:
    return k.frozen if k.of is None else kinds[k.of].frozen


def _unlike(kinds: Sequence[Kind]) -> list[tuple[int, Kind]]:
    """The trained ones of which none before has the same shape, and so the same values."""
    unlike: list[tuple[int, Kind]] = []
    for i, k in trained(kinds):
        if all(k.shape != other.shape for _, other in unlike):
            unlike.append((i, k))
    return unlike


IDENTITY = (
    "Two parameters with equal shapes and values are two: a tied one is the same object, which `is` and id(p) tell."
)
NUMBER = "i is the number in the list that was given, in which frozen, tied and empty parameters count, too."
ONE_LENGTH = "Collective calls take chunks of one length: "
# Of each part the right rule comes first. Places of parameters in the buffer:
PLACES = (
    Part(lambda kinds: _side_by_side([(i, k.numel) for i, k in trained(kinds)])),
    Part(
        lambda kinds: _side_by_side([(i, k.numel) for i, k in enumerate(kinds) if not _frozen(kinds, k)]),
        "A tied parameter is counted twice. It is one tensor with one gradient, and would be updated twice.",
    ),
    Part(
        lambda kinds: _side_by_side([(i, k.numel) for i, k in enumerate(kinds) if k.of is None]),
        "Frozen parameters are counted: no optimizer updates them, and the buffer holds what is trained.",
    ),
    Part(
        lambda kinds: _side_by_side([(i, k.numel) for i, k in enumerate(kinds)]),
        "The buffer holds what is trained, each tensor once: frozen and tied ones are counted here.",
    ),
    Part(lambda kinds: _side_by_side([(i, k.numel) for i, k in _unlike(kinds)]), IDENTITY),
    Part(
        lambda kinds: _side_by_side([(_last_number(kinds, i), k.numel) for i, k in trained(kinds)]),
        "i is the number of a tied parameter's first place in the list, not of its last one.",
    ),
    Part(
        lambda kinds: _side_by_side(list(_last(kinds))),
        "A tied parameter stands at its first place in the list, not at its last one.",
    ),
    Part(lambda kinds: _side_by_side([(number, k.numel) for number, (_, k) in enumerate(trained(kinds))]), NUMBER),
    Part(
        lambda kinds: _side_by_side([(sum(map(_filled, kinds[:i])), k.numel) for i, k in trained(kinds) if _filled(k)]),
        NUMBER,
    ),
    Part(
        lambda kinds: _side_by_side([(sum(k.of is None for k in kinds[:i]), k.numel) for i, k in trained(kinds)]),
        NUMBER,
    ),
    Part(
        lambda kinds: _side_by_side([(i, 4 * k.numel) for i, k in trained(kinds)]),
        "That counts bytes. Places are counted in elements, whatever their dtype.",
    ),
    Part(
        lambda kinds: _side_by_side([(i, k.shape[0] if k.shape else 1) for i, k in trained(kinds)]),
        "That counts rows. A parameter has p.numel() elements, the product of its shape.",
    ),
    Part(
        lambda kinds: _side_by_side([(i, k.numel) for i, k in trained(kinds) if k.shape]),
        "A parameter of shape () is left out. It has one element.",
    ),
    Part(
        lambda kinds: [], "No rank owns anything: a parameter is trained if requires_grad is True, whatever .grad is."
    ),
)


def _cut(length: Callable[[int, int], int]) -> Callable[[int, int], list[tuple[int, int]]]:
    """Chunks that all have the length that n elements and p ranks give."""
    return lambda n, p: [(r * length(n, p), (r + 1) * length(n, p)) for r in range(p)]


def _with_rest(n: int, p: int) -> list[tuple[int, int]]:
    """Rounded down, and what is left is the last rank's."""
    return list(itertools.pairwise([*(r * (n // p) for r in range(p)), n]))


def _one_longer(n: int, p: int) -> list[tuple[int, int]]:
    ends = [r * (n // p) + min(r, n % p) for r in range(p + 1)]
    return list(itertools.pairwise(ends))


CHUNKS = (
    Part(_cut(lambda n, p: -(-n // p))),
    Part(
        _cut(lambda n, p: n // p),
        "The chunk's length was rounded down, so the last elements are nobody's, and never updated. Round up.",
    ),
    Part(
        _with_rest,
        f"{ONE_LENGTH}here the last rank's is longer, for it takes the rest of n // ranks. Round up instead.",
    ),
    Part(_one_longer, f"{ONE_LENGTH}here the first n % ranks ones are one longer, as np.array_split cuts. Round up."),
    Part(_cut(lambda n, p: round(n / p)), "round goes down as often as up: the chunk's length is always rounded up."),
    Part(_cut(lambda n, p: n // p + 1), "n // ranks + 1 is one too many where ranks divide n: round up only if not."),
    Part(
        lambda n, p: [(r * n // p, (r + 1) * n // p) for r in range(p)],
        f"{ONE_LENGTH}borders at r n / p, rounded down, make some one longer. Round the length up, once.",
    ),
    Part(
        lambda n, p: [(max(0, begin - -n % p), end - -n % p) for begin, end in _cut(lambda n, p: -(-n // p))(n, p)],
        "The padding is in front. It is at the end of the buffer: the last ranks own less, not the first.",
    ),
    Part(
        lambda n, p: _cut(lambda n, p: -(-n // p))(n, p)[::-1],
        "The chunks are right, and go to the wrong ranks: rank 0 owns the first.",
    ),
)


def _meet(place: Place, chunk: tuple[int, int]) -> tuple[int, int]:
    return max(place[1], chunk[0]), min(place[2], chunk[1])


Bounds = Callable[[int, int, Place, tuple[int, int]], tuple[int, int]]  # a piece's begin and end, from where they meet


def _pieces(bounds: Bounds) -> Callable[..., Owned]:
    """For each chunk, where it meets the places."""
    return lambda places, chunks: [
        [(at[0], *bounds(*_meet(at, chunk), at, chunk)) for at in places if operator.lt(*_meet(at, chunk))]
        for chunk in chunks
    ]


def _in_parameter(begin: int, end: int, at: Place, chunk: tuple[int, int]) -> tuple[int, int]:
    return begin - at[1], end - at[1]


def _padded(places: Sequence[Place], chunks: Sequence[tuple[int, int]]) -> Owned:
    """The last parameter goes on through the padding."""
    longer = [*places[:-1], *((i, begin, max(end, chunks[-1][1])) for i, begin, end in places[-1:])]
    return _pieces(_in_parameter)(longer, chunks)


PIECES = (
    Part(_pieces(_in_parameter)),
    Part(
        _pieces(lambda begin, end, at, chunk: (begin, end)),
        "begin and end are places in the flat buffer. They are to be counted from where the parameter begins.",
    ),
    Part(
        _pieces(lambda begin, end, at, chunk: (begin - chunk[0], end - chunk[0])),
        "begin and end are places in the rank's chunk. They are to be counted from where the parameter begins.",
    ),
    Part(
        _pieces(lambda begin, end, at, chunk: (begin - at[1], end - at[1] - 1)),
        "end is the last element of the piece. It is to be one more: p.flatten()[begin:end] is the piece.",
    ),
    Part(
        _pieces(lambda begin, end, at, chunk: (begin - at[1], end - begin)),
        "The third number is the length of the piece. It is to be its end in the parameter, end not included.",
    ),
    Part(
        _padded,
        "Padding is given out as elements of the last parameter, which has no more than p.numel(): it is nobody's.",
    ),
    Part(
        _pieces(lambda begin, end, at, chunk: (0, at[2] - at[1])),
        "A parameter is given whole to each rank that owns a part of it: give each rank its own part alone.",
    ),
    Part(
        _pieces(lambda begin, end, at, chunk: (0, end - begin)),
        "Each piece begins at 0. Where a parameter began in an earlier chunk, its piece begins where that one ended.",
    ),
)
PARTS = (PLACES, CHUNKS, PIECES)
RIGHT = [part[0] for part in PARTS]


def owned(case: ShardCase, rules: Sequence[Part] = RIGHT) -> Owned:
    """What the rules make of a case; the right ones, unless told."""
    places, chunks, pieces = (rule.value for rule in rules)
    at = places(case.kinds)
    return pieces(at, chunks(at[-1][2] if at else 0, case.ranks))


def _each_alone(case: ShardCase, chunks: Part) -> Owned:
    """Each parameter has chunks of its own."""
    places = PLACES[0].value(case.kinds)
    cut = {i: chunks.value(end - begin, case.ranks) for i, begin, end in places}
    rows = [[(i, cut[i][r][0], min(cut[i][r][1], end - begin)) for i, begin, end in places] for r in range(case.ranks)]
    return [[piece for piece in row if piece[1] < piece[2]] for row in rows]


EACH_ALONE = (
    "Each parameter is cut by itself. All of them stand in one buffer, which is cut once: a chunk may hold several "
    "parameters, and a parameter lie in several chunks."
)


def misconceptions() -> Iterator[tuple[str, Callable[[ShardCase], Owned]]]:
    """Those with one mistake, then with two, each with what such a program gives."""
    for rule in CHUNKS:
        yield EACH_ALONE, functools.partial(_each_alone, chunks=rule)
    for mistakes in (1, 2):
        for parts in itertools.combinations(range(len(PARTS)), mistakes):
            choices = [part[1:] if i in parts else part[:1] for i, part in enumerate(PARTS)]
            for rules in itertools.product(*choices):
                yield " ".join(rule.why for rule in rules if rule.why), functools.partial(owned, rules=rules)


# -- observation --


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Every rank may call this; ranks do not talk."""
    draw = drawing()
    everyone: list[Facts] = []
    for case in [*FIXED, *(_drawn(draw) for _ in range(15))]:
        everyone.append(_facts(answer, case, everyone))
    # What came of the cases before one that raised, or gave something of another form, says more if it is wrong.
    wrong = next((facts for facts in everyone[0].seen if facts.wrong is not None), None)
    stopped = everyone[len(everyone[0].seen)] if len(everyone[0].seen) < len(everyone) else None
    if (facts := wrong or stopped) is None:
        return
    finding = judge(PIECES_OWNED if wrong else FORM + RAISED, facts)
    answer.line = facts.line
    if finding is None:
        assert facts.error is not None
        raise facts.error
    raise Wrong(finding.asked, finding.got, finding.why)


@dataclass(frozen=True)
class Facts:
    """What came of one case. error: what it raised. line: where. everyone: what came of all cases, in their order."""

    answer: Answer
    case: ShardCase
    everyone: Sequence["Facts"]
    result: Any = None
    error: Exception | None = None
    line: int | None = None

    rank = None
    ranks = property(lambda self: self.case.ranks)
    is_rows = property(lambda self: isinstance(self.result, list) and all(isinstance(r, list) for r in self.result))
    pieces = property(lambda self: [piece for row in self.result for piece in row])
    strange = property(lambda self: next((short(piece) for piece in self.pieces if not _is_piece(piece)), ""))
    own = functools.cached_property(
        lambda self: [[(int(i), int(begin), int(end)) for i, begin, end in row] for row in self.result]
    )
    want = functools.cached_property(lambda self: owned(self.case))

    @functools.cached_property
    def wrong(self) -> int | None:
        """The first rank that owns something else than it should."""
        return next((rank for rank in range(self.ranks) if self.own[rank] != self.want[rank]), None)

    @functools.cached_property
    def seen(self) -> list["Facts"]:
        """What came of the cases until the first one that raised, or gave something of another form."""
        return list(itertools.takewhile(lambda facts: not facts.error and not judge(FORM, facts), self.everyone))

    def always(self, holds: Callable[[ShardCase, Owned], bool]) -> bool:
        """Whether this holds for all that was seen."""
        return all(holds(facts.case, facts.own) for facts in self.seen)

    def only_where(self, holds: Callable[[ShardCase], bool]) -> bool:
        """Whether all cases for which something is wrong are such ones."""
        return all(holds(facts.case) for facts in self.seen if facts.wrong is not None)

    mistakes = functools.cached_property(
        lambda self: explanation(misconceptions(), [((facts.case,), facts.own) for facts in self.seen], gives())
    )
    as_first = functools.cached_property(lambda self: as_first(self.answer, functools.partial(_right, case=self.case)))

    # Elements, each (number of the parameter, element).

    every = property(lambda self: [(i, e) for i, k in trained(self.case.kinds) for e in range(k.numel)])
    times = property(lambda self: Counter(element for row in self.own for element in elements(row)))
    twice = property(lambda self: next((element for element, count in self.times.items() if count > 1), None))
    nobodys = property(lambda self: next((element for element in self.every if element not in self.times), None))

    @property
    def impossible(self) -> Piece | None:
        """The first piece that lies in no parameter."""
        kinds = self.case.kinds
        return next(
            (p for p in self.pieces if not 0 <= p[0] < len(kinds) or not 0 <= p[1] < p[2] <= kinds[p[0]].numel), None
        )

    @property
    def unlike(self) -> tuple[int, int, int] | None:
        """The first rank that owns another number of elements than it should: rank, number, right number."""
        numbers = [(len(elements(row)), len(elements(want))) for row, want in zip(self.own, self.want, strict=True)]
        return next(((rank, *pair) for rank, pair in enumerate(numbers) if pair[0] != pair[1]), None)

    # What sentences show.

    asked_on_rank = property(lambda self: f"{self.want[self.wrong]} on rank {self.wrong}, of {self.case}")
    shown_on_rank = property(lambda self: short(self.own[self.wrong], 150))
    shown = property(lambda self: short(self.result))
    rows = property(lambda self: len(self.result))
    shown_error = property(lambda self: f"{type(self.error).__name__}: {short(str(self.error), 120)}")
    element = property(lambda self: "Element {1} of parameter {0}".format(*(self.twice or self.nobodys)))
    total = property(lambda self: len(self.every))
    chunk = property(lambda self: -(-self.total // self.ranks))
    has = property(
        lambda self: (
            f"parameter {self.impossible[0]} has {self.case.kinds[self.impossible[0]].numel} elements"
            if 0 <= self.impossible[0] < len(self.case.kinds)
            else f"there is no parameter {self.impossible[0]}"
        )
    )


def _facts(answer: Answer, case: ShardCase, everyone: Sequence[Facts]) -> Facts:
    try:
        result = answer.call(NAME, case.tensors(), case.ranks)
    except NotImplementedError:
        raise
    except STUMBLES as error:
        return Facts(answer, case, everyone, None, error, answer.line)
    return Facts(answer, case, everyone, result, None, answer.line)


def _right(answer: Answer, case: ShardCase) -> None:
    """Raise Wrong unless it is."""
    facts = _facts(answer, case, [])
    if facts.error or judge(FORM, facts) or facts.wrong is not None:
        raise Wrong(short(facts.want), facts.shown)


def _is_piece(piece: Any) -> bool:
    whole = isinstance(piece, tuple) and len(piece) == 3
    return whole and all(isinstance(n, numbers.Integral) and not isinstance(n, bool) for n in piece)


def elements(row: Sequence[Piece]) -> list[tuple[int, int]]:
    return [(i, element) for i, begin, end in row for element in range(begin, end)]


def has_whole_parameters(case: ShardCase, got: Owned) -> bool:
    """Whether each trained parameter is one rank's, as a whole."""
    wanted = [(i, 0, k.numel) for i, k in trained(case.kinds) if k.numel]
    return sorted(piece for row in got for piece in row if piece[2]) == wanted


def has_right_lengths(case: ShardCase, got: Owned) -> bool:
    """Whether each rank owns as many elements as it has to, and each element is owned once."""
    want = owned(case)
    once = {i: i if kind.of is None else kind.of for i, kind in enumerate(case.kinds)}
    every = [sorted((once.get(i), e) for row in rows for i, e in elements(row)) for rows in (got, want)]
    return every[0] == every[1] and [len(elements(row)) for row in got] == [len(elements(row)) for row in want]


def deals_in_turn(case: ShardCase, got: Owned) -> bool:
    """Whether elements are dealt out one by one."""
    every = [(i, e) for i, k in trained(case.kinds) for e in range(k.numel)]
    return all(sorted(elements(row)) == every[r :: case.ranks] for r, row in enumerate(got))


def chunks_of_one(case: ShardCase) -> int:
    """Return in how many chunks a parameter lies at most."""
    return max(Counter(i for row in owned(case) for i, _, _ in row).values(), default=0)


# -- what is said --

LISTS = "a list of {ranks} lists of tuples (i, begin, end), of {case}"
FORM = [
    Test("None", lambda f: not f.error and f.result is None, LISTS, "None", "Nothing came back: is the list returned?"),
    Test(
        "no lists",
        lambda f: not f.error and not f.is_rows,
        LISTS,
        "{shown}",
        "Return a list of lists: of each rank, in order, what it owns.",
    ),
    Test(
        "another number of lists",
        lambda f: not f.error and f.rows != f.ranks,
        LISTS,
        "{rows} lists",
        "Every rank has a list, in order. One that owns nothing has an empty one.",
    ),
    Test(
        "no piece",
        lambda f: not f.error and f.strange,
        LISTS,
        "a piece {strange}",
        "A piece is a tuple of three ints: the parameter's number, its first element, its last one plus 1.",
    ),
]
RAISED = [
    Test(
        "tensors compared",
        lambda f: "size of tensor" in str(f.error) or "Boolean value" in str(f.error),
        LISTS,
        "{shown_error}",
        "`in`, == and list.index compare tensors element by element, which two of different shapes do not allow, and "
        "which finds equal values, too. Whether two are one object is told by `is`, or by id(p).",
    ),
    Test(
        "nothing to train",
        lambda f: not isinstance(f.error, RuntimeError) and not f.every,
        LISTS,
        "{shown_error}",
        "There may be no element to train. Then every rank owns nothing: an empty list for each of them.",
    ),
    Test(
        "dimensions",
        lambda f: "tuple index out of range" in str(f.error) or "0-d tensor" in str(f.error),
        LISTS,
        "{shown_error}",
        "A parameter may have any number of dimensions, also none: p.numel() is the product of its shape.",
    ),
    Test(
        "a length of 0",
        lambda f: ("by zero" in str(f.error) or "must not be zero" in str(f.error)) and 0 < f.total < f.ranks,
        LISTS,
        "{shown_error}",
        "With more ranks than elements, elements // ranks is 0. The chunk's length is rounded up, so it is 1 at least.",
    ),
    Test(
        "more places than ranks",
        lambda f: isinstance(f.error, IndexError) and f.total % f.ranks,
        LISTS,
        "{shown_error}",
        "The number of ranks need not divide the number of elements, {total} here: the chunk's length is rounded up, "
        "so that the last element has a rank, too.",
    ),
]
ORDER = "The chunks have the right lengths, and the parameters stand in another order than in the list."
WHYS = [
    Rule("one mistake or two", lambda f: f.mistakes, "{mistakes}"),
    Rule(
        "empty pieces",
        lambda f: f.always(lambda case, got: [[p for p in row if p[1] < p[2]] for row in got] == owned(case)),
        "Empty pieces are listed, whose begin is their end: leave them out. A parameter may have no part in a chunk.",
    ),
    Rule(
        "cut otherwise",
        lambda f: f.always(lambda case, got: [*map(elements, got)] == [*map(elements, owned(case))]),
        "The right elements, in other pieces: a rank has one tuple for each parameter of which it owns a part.",
    ),
    Rule(
        "order of pieces",
        lambda f: f.always(lambda case, got: [sorted(row) for row in got] == owned(case)),
        "The right pieces, in another order: a rank's pieces are in the order of the buffer.",
    ),
    Rule(
        "one list",
        lambda f: f.always(lambda case, got: all(row == got[0] for row in got)),
        "All ranks have the same list: [[]] * ranks is one list that stands there several times. Make one for each.",
    ),
    Rule(
        "rank 0 alone",
        lambda f: f.always(lambda case, got: not any(got[1:])),
        "Rank 0 owns everything: cut the buffer into a chunk for each rank.",
    ),
    Rule(
        "in turn",
        lambda f: f.always(deals_in_turn),
        "Elements are dealt out in turn, one by one. A rank's elements are a chunk: they follow each other in the "
        "buffer, so that collective calls can send them as they lie.",
    ),
    Rule(
        "whole parameters",
        lambda f: f.always(has_whole_parameters),
        "Whole parameters are dealt out, as torch's ZeroRedundancyOptimizer does. A large one would make one rank's "
        "part large: cut the flat buffer into equal chunks, also within a parameter.",
    ),
    Rule("order of parameters", lambda f: f.always(has_right_lengths), ORDER),
    Rule("what earlier calls left", lambda f: f.as_first, "{as_first}"),
    Rule(
        "tied by memory",
        lambda f: f.only_where(lambda case: case.views),
        "A tied parameter is the same object, which `is` and id(p) tell. Where its memory begins does not: different "
        "views of one tensor may begin at the same place.",
    ),
    Rule(
        "tied ones",
        lambda f: f.only_where(lambda case: any(kind.of is not None for kind in case.kinds)),
        "It is right where no parameter is in the list twice. A tied one has its first place in the buffer, where the "
        "others take no elements and leave no gap.",
    ),
    Rule(
        "frozen ones",
        lambda f: f.only_where(lambda case: any(kind.frozen for kind in case.kinds)),
        "It is right where none is frozen. Which ones are is told by each parameter's own requires_grad.",
    ),
    Rule(
        "in many chunks",
        lambda f: f.only_where(lambda case: chunks_of_one(case) > 2),
        "It is right where a parameter lies in two chunks at most. A long one may lie in many.",
    ),
    Rule(
        "impossible piece",
        lambda f: f.impossible,
        "{impossible} is no piece, for {has}: 0 <= begin < end <= p.numel() of parameters[i].",
    ),
    Rule("owned twice", lambda f: f.twice, "{element} is owned twice. Each element belongs to one rank."),
    Rule("nobody's", lambda f: f.nobodys, "{element} is nobody's. Each element belongs to one rank."),
    Rule(
        "another length",
        lambda f: f.unlike,
        "Rank {unlike[0]} owns {unlike[1]} elements, not {unlike[2]}. "
        "All chunks are as long as {total} over {ranks} rounded up, {chunk}, and the last ones have "
        "padding.",
    ),
    Rule("another order", always, ORDER),
]
PIECES_OWNED = [Test("pieces", always, "{asked_on_rank}", "{shown_on_rank}", WHYS)]
