"""What e10_shard is asked: which elements each rank owns, for parameters of many kinds."""

import dataclasses
import functools
import itertools
import numbers
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.explain import explanation, gives
from mpcourse.course.check.facts.calls import as_first
from mpcourse.course.check.rules import Test, judge, why_of
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, short

NAME = "shards"
STUMBLES = (RuntimeError, LookupError, ValueError, TypeError, ArithmeticError)
Piece = tuple[int, int, int]
Owned = list[list[Piece]]

# -- inputs --


@dataclass(frozen=True)
class Kind:
    """A tensor of the list. of: the number of the tensor in the list that it is again; None: it is a new one."""

    shape: tuple[int, ...]
    frozen: bool = False
    of: int | None = None

    numel = property(lambda self: torch.Size(self.shape).numel())
    trained = property(lambda self: self.of is None and not self.frozen)

    def __str__(self) -> str:
        return f"number {self.of} again" if self.of is not None else str(self.shape) + " frozen" * self.frozen


@dataclass(frozen=True)
class Case:
    """The arguments: tensors of these kinds, all with equal values, and a number of ranks.

    views: whether all tensors are views of one, which begin at the same place in memory.
    """

    kinds: tuple[Kind, ...]
    ranks: int
    views: bool = False

    def __str__(self) -> str:
        text = f"shards([{', '.join(map(str, self.kinds))}], {self.ranks})"
        return text + ", all views of one tensor" * self.views

    @property
    def trained(self) -> list[tuple[int, Kind]]:
        """The parameters in the buffer, each with its number."""
        return [(i, k) for i, k in enumerate(self.kinds) if k.trained]

    def tensors(self) -> list[torch.Tensor]:
        row = torch.ones(max((kind.numel for kind in self.kinds), default=0))
        made: list[torch.Tensor] = []
        for kind in self.kinds:
            new = row[: kind.numel].view(kind.shape).detach() if self.views else torch.ones(kind.shape)
            made.append(new.requires_grad_(not kind.frozen) if kind.of is None else made[kind.of])
        return made


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
    Case((Kind((0, 2)),), 3),
    Case((), 3),
    Case((Kind((2,)), Kind((6,)), Kind((2, 2))), 2, views=True),
]


def _drawn(draw: random.Random) -> Case:
    kinds: list[Kind] = []
    for i in range(draw.randint(1, 6)):
        if kinds and draw.random() < 0.2:
            of = draw.randrange(i)
            kinds.append(dataclasses.replace(kinds[of], of=of if kinds[of].of is None else kinds[of].of))
        else:
            shape = tuple(draw.randint(1, 6) for _ in range(draw.randint(0, 3)))
            kinds.append(Kind(shape, frozen=draw.random() < 0.2))
    return Case(tuple(kinds), draw.randint(1, 8))


# -- what right and wrong programs give: by what is wrong, empty for what is right --


def _counting(counts: Callable[[Kind], Any]) -> Callable[[Case], list[tuple[int, int]]]:
    """Give each parameter its number among the parameters that count."""
    return lambda case: [(sum(1 for o in case.kinds[:i] if counts(o)), k.numel) for i, k in case.trained]


def _at_last(case: Case) -> list[tuple[int, int]]:
    """Give a tied parameter the number of its last place in the list."""
    return [(max(j for j, other in enumerate(case.kinds) if i in (j, other.of)), k.numel) for i, k in case.trained]


def _with_padding(case: Case) -> list[tuple[int, int]]:
    """Let the last parameter go on through the padding."""
    padding = -sum(k.numel for _, k in case.trained) % case.ranks
    return [(i, k.numel + (padding if (i, k) == case.trained[-1] else 0)) for i, k in case.trained]


NUMBER = "i is the number in the list that was given, in which"
BUFFERS: dict[str, Callable[[Case], list[tuple[int, int]]]] = {  # (number, elements) of what is in the buffer
    "": lambda case: [(i, k.numel) for i, k in case.trained],
    "A tied parameter is counted twice. It is one tensor with one gradient, and would be updated twice.": lambda case: [
        (i, k.numel) for i, k in enumerate(case.kinds) if not k.frozen
    ],
    "Frozen parameters are counted: no optimizer updates them, and the buffer holds what is trained.": lambda case: [
        (i, k.numel) for i, k in enumerate(case.kinds) if k.of is None
    ],
    "The buffer holds what is trained, each tensor once: frozen and tied ones are counted here.": lambda case: [
        (i, k.numel) for i, k in enumerate(case.kinds)
    ],
    "Two parameters with equal shapes and values are two: a tied one is the same object, which `is` and id(p) tell.": (
        lambda case: [
            (i, k.numel) for i, k in case.trained if k.shape not in [o.shape for j, o in case.trained if j < i]
        ]
    ),
    "i is the number of a tied parameter's first place in the list, not of its last one.": _at_last,
    "A tied parameter is in the buffer at its first place in the list, not at its last one.": lambda case: sorted(
        _at_last(case)
    ),
    f"{NUMBER} frozen and tied parameters count, too.": _counting(lambda k: k.trained),
    f"{NUMBER} empty parameters count, too.": _counting(lambda k: k.numel),
    f"{NUMBER} tied parameters count, too.": _counting(lambda k: k.of is None),
    "That counts bytes. Places are counted in elements, whatever their dtype.": lambda case: [
        (i, 4 * k.numel) for i, k in case.trained
    ],
    "That counts rows. A parameter has p.numel() elements, the product of its shape.": lambda case: [
        (i, k.shape[0] if k.shape else 1) for i, k in case.trained
    ],
    "A parameter of shape () is left out. It has one element.": lambda case: [
        (i, k.numel) for i, k in case.trained if k.shape
    ],
    "Padding is given out as elements of the last parameter. It belongs to no rank: end is p.numel() at most.": (
        _with_padding
    ),
    "No rank owns anything: a parameter is trained if requires_grad is True, whatever .grad is.": lambda case: [],
}
ONE_LENGTH = "Collective calls take chunks of one length: "
CHUNKS: dict[str, Callable[[int, int, int], int]] = {  # where the r-th chunk of n elements begins, on p ranks
    "": lambda r, n, p: r * -(-n // p),
    "The chunk's length was rounded down, so the last elements belong to no rank. Round up.": (
        lambda r, n, p: r * (n // p)
    ),
    f"{ONE_LENGTH}here the last rank's is longer, as it takes the rest of n // ranks. Round up instead.": (
        lambda r, n, p: n if r == p else r * (n // p)
    ),
    f"{ONE_LENGTH}here the first n % ranks ones are one longer, as np.array_split cuts. Round up.": (
        lambda r, n, p: r * (n // p) + min(r, n % p)
    ),
    "round goes down as often as up: the chunk's length is always rounded up.": lambda r, n, p: r * round(n / p),
    "n // ranks + 1 is one too many where ranks divide n: round up only if not.": lambda r, n, p: r * (n // p + 1),
    f"{ONE_LENGTH}borders at r n / p, rounded down, make some one longer. Round the length up, once.": (
        lambda r, n, p: r * n // p
    ),
    "The padding is in front. It is at the end of the buffer: the last ranks own less, not the first.": (
        lambda r, n, p: max(0, r * -(-n // p) - -n % p)
    ),
    "The chunks are right, and go to the wrong ranks: rank 0 owns the first.": lambda r, n, p: (p - r) * -(-n // p),
}
Range = tuple[int, int]
# Begin and end of a piece, from where a parameter and a chunk meet in the buffer, and from where both are in it.
PIECES: dict[str, Callable[[int, int, Range, Range], Range]] = {
    "": lambda begin, end, at, chunk: (begin - at[0], end - at[0]),
    "begin and end are places in the flat buffer. They are to be counted from where the parameter begins.": (
        lambda begin, end, at, chunk: (begin, end)
    ),
    "begin and end are places in the rank's chunk. They are to be counted from where the parameter begins.": (
        lambda begin, end, at, chunk: (begin - chunk[0], end - chunk[0])
    ),
    "end is the last element of the piece. It is to be one more: p.flatten()[begin:end] is the piece.": (
        lambda begin, end, at, chunk: (begin - at[0], end - at[0] - 1)
    ),
    "The third number is the length of the piece. It is to be its end in the parameter, end not included.": (
        lambda begin, end, at, chunk: (begin - at[0], end - begin)
    ),
    "A parameter is given whole to each rank that owns a part of it: give each rank its own part alone.": (
        lambda begin, end, at, chunk: (0, at[1] - at[0])
    ),
    "Each piece begins at 0. Where a parameter began in an earlier chunk, its piece begins where that one ended.": (
        lambda begin, end, at, chunk: (0, end - begin)
    ),
}
RIGHT = (BUFFERS[""], CHUNKS[""], PIECES[""])


def owned(case: Case, parts: Sequence[Callable[..., Any]] = RIGHT) -> Owned:
    """Return what a program of these parts gives: one of BUFFERS, of CHUNKS and of PIECES."""
    buffer, border, piece = parts
    ends = [0, *itertools.accumulate(n for _, n in buffer(case))]
    places = [(i, at) for (i, _), at in zip(buffer(case), itertools.pairwise(ends), strict=True)]
    rows = []
    for first, last in itertools.pairwise(border(r, ends[-1], case.ranks) for r in range(case.ranks + 1)):
        chunk = min(first, last), max(first, last)
        meets = [(i, max(at[0], chunk[0]), min(at[1], chunk[1]), at) for i, at in places]
        rows.append([(i, *piece(begin, end, at, chunk)) for i, begin, end, at in meets if begin < end])
    return rows


def _each_alone(case: Case, buffer: Callable[..., Any], border: Callable[..., int]) -> Owned:
    """Return what a program gives that cuts each parameter of a buffer by itself."""
    alone = [owned(case, (lambda case, one=one: [one], border, PIECES[""])) for one in buffer(case)]
    return [[piece for rows in alone for piece in rows[rank]] for rank in range(case.ranks)]


def _length_of_all(case: Case) -> Owned:
    """Return what a program gives that takes the chunk's length from all elements of the list."""
    elements = sum(kind.numel for kind in case.kinds)
    return owned(case, (BUFFERS[""], lambda r, n, p: r * -(-elements // p), PIECES[""]))


def _with_gaps(case: Case) -> Owned:
    """Return what a program gives that leaves room for frozen parameters."""
    rows = owned(case, (lambda case: [(i, k.numel) for i, k in enumerate(case.kinds) if k.of is None], *RIGHT[1:]))
    return [[piece for piece in row if case.kinds[piece[0]].trained] for row in rows]


ALONE = {  # what is no product of a buffer, a border and a piece
    "The chunk's length is that of all elements in the list over the number of ranks. Frozen parameters, and the "
    "second place of a tied one, are not in the buffer, and do not count.": _length_of_all,
    "Frozen parameters have no piece, and still take room in the buffer: what follows is to begin where the last "
    "trained one ended.": _with_gaps,
}
EACH_ALONE = (
    "Each parameter is cut by itself. All of them are in one buffer, which is cut once: a chunk may hold several "
    "parameters, and a parameter lie in several chunks."
)


def misconceptions() -> Iterator[tuple[str, Callable[[Case], Owned]]]:
    """Yield those with one mistake, then with two, each with what such a program gives."""
    yield from ALONE.items()
    for border in CHUNKS.values():
        yield EACH_ALONE, functools.partial(_each_alone, buffer=BUFFERS[""], border=border)
    for mistakes in (1, 2):
        for parts in itertools.product(BUFFERS.items(), CHUNKS.items(), PIECES.items()):
            whys = [why for why, _ in parts if why]
            if len(whys) == mistakes:
                yield " ".join(whys), functools.partial(owned, parts=[part for _, part in parts])
    for buffer, border in itertools.product(BUFFERS.values(), CHUNKS.values()):
        yield EACH_ALONE, functools.partial(_each_alone, buffer=buffer, border=border)


# -- observation --


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    draw = drawing()
    everyone: list[Facts] = []
    for case in [*FIXED, *(_drawn(draw) for _ in range(15))]:
        everyone.append(_facts(answer, case, everyone))
        if judge(FORM, everyone[-1]):
            break
    # What came of the cases before one that raised, or gave something of another form, says more if it is wrong.
    facts = next((facts for facts in everyone[-1].seen if facts.wrong is not None), everyone[-1])
    answer.line = facts.line
    finding = judge([*FORM, PIECES_OWNED], facts)
    if facts.error and not why_of(WHYS_RAISED, facts):
        raise facts.error
    if finding:
        raise Wrong(finding.asked, finding.got, finding.why)


@dataclass(frozen=True)
class Facts:
    """What came of one case. error: what it raised. line: where. everyone: what came of all cases, in their order."""

    answer: Answer
    case: Case
    everyone: Sequence["Facts"]
    result: Any = None
    error: Exception | None = None
    line: int | None = None

    ranks = property(lambda self: self.case.ranks)
    is_rows = property(lambda self: isinstance(self.result, list) and all(isinstance(r, list) for r in self.result))
    pieces = property(lambda self: [piece for row in self.result for piece in row])
    strange = property(lambda self: next((short(piece) for piece in self.pieces if not _is_piece(piece)), ""))
    own = functools.cached_property(lambda self: [[tuple(map(int, piece)) for piece in row] for row in self.result])
    want = functools.cached_property(lambda self: owned(self.case))
    seen = property(lambda self: [facts for facts in self.everyone if not judge(FORM, facts)])

    @functools.cached_property
    def wrong(self) -> int | None:
        """The first rank that owns something else than it should."""
        return next((rank for rank in range(self.ranks) if self.own[rank] != self.want[rank]), None)

    def always(self, holds: Callable[["Facts"], bool]) -> bool:
        """Return whether this holds for all that was seen."""
        return all(map(holds, self.seen))

    def only_where(self, holds: Callable[["Facts"], bool]) -> bool:
        """Return whether all cases for which something is wrong are such ones."""
        return all(holds(facts) for facts in self.seen if facts.wrong is not None)

    mistakes = functools.cached_property(
        lambda self: explanation(
            misconceptions(), [((facts.case,), facts.own) for facts in self.seen], gives(_same_but_empty_pieces)
        )
    )
    as_first = functools.cached_property(lambda self: as_first(self.answer, functools.partial(_right, case=self.case)))

    # Elements, each (number of the parameter, element).

    every = property(lambda self: [(i, e) for i, k in self.case.trained for e in range(k.numel)])
    elements = property(lambda self: [_elements(row) for row in self.own])
    right_elements = property(lambda self: [_elements(row) for row in self.want])
    times = property(lambda self: Counter(element for row in self.elements for element in row))
    twice = property(lambda self: next((element for element, count in self.times.items() if count > 1), None))
    missing = property(lambda self: next((element for element in self.every if element not in self.times), None))

    @property
    def unlike(self) -> tuple[int, int, int] | None:
        """The first rank that owns another number of elements than it should: rank, number, right number."""
        rows = enumerate(zip(self.elements, self.right_elements, strict=True))
        return next(((rank, len(row), len(want)) for rank, (row, want) in rows if len(row) != len(want)), None)

    @property
    def impossible(self) -> Piece | None:
        """The first piece that lies in no parameter."""
        numels = [kind.numel for kind in self.case.kinds]
        return next(
            (p for p in self.pieces if p[0] not in range(len(numels)) or not 0 <= p[1] < p[2] <= numels[p[0]]), None
        )

    # What sentences show.

    asked_on_rank = property(lambda self: f"{self.want[self.wrong]} on rank {self.wrong}, of {self.case}")
    shown_on_rank = property(lambda self: short(self.own[self.wrong], 150))
    shown = property(lambda self: short(self.result))
    shown_error = property(lambda self: f"{type(self.error).__name__}: {short(str(self.error), 120)}")
    element = property(lambda self: "Element {1} of parameter {0}".format(*(self.twice or self.missing)))
    total = property(lambda self: len(self.every))
    chunk = property(lambda self: -(-self.total // self.ranks))


def _facts(answer: Answer, case: Case, everyone: Sequence[Facts]) -> Facts:
    try:
        result = answer.call(NAME, case.tensors(), case.ranks)
    except NotImplementedError:
        raise
    except STUMBLES as error:
        return Facts(answer, case, everyone, None, error, answer.line)
    return Facts(answer, case, everyone, result, None, answer.line)


def _right(answer: Answer, case: Case) -> None:
    """Raise Wrong unless it is."""
    facts = _facts(answer, case, [])
    if judge(FORM, facts) or facts.wrong is not None:
        raise Wrong(short(facts.want), facts.shown)


def _is_piece(piece: Any) -> bool:
    whole = isinstance(piece, tuple) and len(piece) == 3
    return whole and all(isinstance(n, numbers.Integral) and not isinstance(n, bool) for n in piece)


def _same_but_empty_pieces(some: Owned, others: Owned) -> bool:
    some, others = ([[p for p in row if p[1] != p[2]] for row in rows] for rows in (some, others))
    return some == others


def _elements(row: Sequence[Piece]) -> list[tuple[int, int]]:
    return [(i, element) for i, begin, end in row for element in range(begin, end)]


# -- what is said --

WHYS_RAISED = {
    "`in`, == and list.index compare tensors element by element, which two of different shapes do not allow, and "
    "which finds equal values, too. Compare objects by `is`, or by id(p).": (
        lambda f: "size of tensor" in str(f.error) or "Boolean value" in str(f.error)
    ),
    "There may be no element to train. Then every rank owns nothing: an empty list for each of them.": (
        lambda f: not isinstance(f.error, RuntimeError) and not f.every
    ),
    "A parameter may have any number of dimensions, also none: p.numel() is the product of its shape.": (
        lambda f: "tuple index out of range" in str(f.error) or "0-d tensor" in str(f.error)
    ),
    "With more ranks than elements, elements // ranks is 0. The chunk's length is rounded up, so it is 1 at least.": (
        lambda f: ("by zero" in str(f.error) or "must not be zero" in str(f.error)) and 0 < f.total < f.ranks
    ),
    "The number of ranks need not divide the number of elements, {total} here: the chunk's length is rounded up, "
    "so that the last element has a rank, too.": lambda f: isinstance(f.error, IndexError) and f.total % f.ranks,
}
LISTS = "a list of {ranks} lists of tuples (i, begin, end), of {case}"
FORM: list[Test] = [
    Test("raised", lambda f: f.error, LISTS, "{shown_error}", WHYS_RAISED),
    Test("None", lambda f: f.result is None, LISTS, "None", "Nothing came back: is the list returned?"),
    Test(
        "no lists",
        lambda f: not f.is_rows,
        LISTS,
        "{shown}",
        "Return a list of lists: of each rank, in order, what it owns.",
    ),
    Test(
        "another number of lists",
        lambda f: len(f.result) != f.ranks,
        LISTS,
        lambda f: f"{len(f.result)} lists",
        "Every rank has a list, in order. One that owns nothing has an empty one.",
    ),
    Test(
        "no piece",
        lambda f: f.strange,
        LISTS,
        "a piece {strange}",
        "A piece is a tuple of three ints: the parameter's number, its first element, its last one plus 1.",
    ),
]
WHYS = {
    "{mistakes}": lambda f: f.mistakes,
    "Empty pieces are listed, whose begin is their end: leave them out. A parameter may have no part in a chunk.": (
        lambda f: f.always(lambda one: _same_but_empty_pieces(one.own, one.want))
    ),
    "The right elements, in other pieces: a rank has one tuple for each parameter that it owns a part of.": (
        lambda f: f.always(lambda one: one.elements == one.right_elements)
    ),
    "The right pieces, in another order: a rank's pieces are in the order of the buffer.": lambda f: f.always(
        lambda one: [sorted(row) for row in one.own] == one.want
    ),
    "All ranks have the same list: [[]] * ranks holds one list several times. Make one for each.": (
        lambda f: f.always(lambda one: all(row == one.own[0] for row in one.own))
    ),
    "Rank 0 owns everything: cut the buffer into a chunk for each rank.": lambda f: f.always(
        lambda one: not any(one.own[1:])
    ),
    "Elements are dealt out in turn, one by one. A rank's elements are a chunk: they follow each other in the "
    "buffer, so that collective calls can send them as they lie.": lambda f: f.always(
        lambda one: all(sorted(r) == one.every[i :: one.ranks] for i, r in enumerate(one.elements))
    ),
    "Whole parameters are dealt out, as torch's ZeroRedundancyOptimizer does. A large one would make one rank's "
    "part large: cut the flat buffer into equal chunks, also within a parameter.": lambda f: f.always(
        lambda one: sorted(p for p in one.pieces if p[2]) == [(i, 0, k.numel) for i, k in one.case.trained if k.numel]
    ),
    "The chunks have the right lengths, but the parameters are in another order than in the list.": (
        lambda f: sorted(itertools.chain(*f.elements)) == f.every and not f.unlike
    ),
    "{as_first}": lambda f: f.as_first,
    "A tied parameter is the same object, which `is` and id(p) tell. Where its memory begins does not: different "
    "views of one tensor may begin at the same place.": lambda f: f.only_where(lambda one: one.case.views),
    "It is right where no parameter is in the list twice. A tied one has its first place in the buffer, where the "
    "others take no elements and leave no gap.": lambda f: f.only_where(
        lambda one: any(kind.of is not None for kind in one.case.kinds)
    ),
    "It is right where none is frozen. Each parameter's own requires_grad says whether it is.": (
        lambda f: f.only_where(lambda one: any(kind.frozen for kind in one.case.kinds))
    ),
    "It is right where a parameter lies in two chunks at most. A long one may lie in many.": lambda f: f.only_where(
        lambda one: any(n > 2 for n in Counter(i for row in one.want for i, _, _ in row).values())
    ),
    "{impossible} is no piece: 0 <= begin < end <= p.numel() of parameters[i].": lambda f: f.impossible,
    "{element} is owned twice. Each element belongs to one rank.": lambda f: f.twice,
    "{element} belongs to no rank. Each element belongs to one.": lambda f: f.missing,
    "Rank {unlike[0]} owns {unlike[1]} elements, not {unlike[2]}. All chunks are as long as {total} over {ranks} "
    "rounded up, {chunk}.": lambda f: f.unlike,
}
PIECES_OWNED = Test("pieces", lambda f: f.wrong is not None, "{asked_on_rank}", "{shown_on_rank}", WHYS)
