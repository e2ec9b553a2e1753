"""What e13_zigzag is asked: each token once, equal work in each step, and all visible pairs in few rectangles."""

import functools
import itertools
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from mpcourse.common.words import counted, named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.rules import demand, rules, tests
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short, to_numpy

MOST = 3  # rectangles
# Tokens and ranks. In UNEVEN, twice the number of ranks does not divide the number of tokens.
EVEN = [(24, 3), (16, 2), (40, 4), (6, 1), (8, 4), (2, 1), (128, 8), (200, 2)]
UNEVEN = [(29, 3), (19, 2), (37, 4), (36, 4), (5, 1), (43, 5), (7, 3), (135, 8)]


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    draw = drawing()
    size, piece = draw.randint(2, 6), draw.randint(4, 9)
    length = 2 * size * piece
    cases = [*EVEN, (length, size), *UNEVEN, (length + draw.randint(1, 2 * size - 1), size)]
    checks: list[Callable[..., Any]] = [_share, _meet, partial(_meet, consecutive=True)]
    calls = [partial(one, length=length, size=size) for one in checks for length, size in cases]
    one_by_one(answer, [*calls, partial(_meet, length=24, size=3, later=True)])


def _share(answer: Answer, length: int, size: int) -> list[Any]:
    """Return the shares as the answer gives them."""
    got = answer.call("share", length, size)
    demand(SHARES, Shared(length, size, got))
    return [*got]


def _meet(answer: Answer, length: int, size: int, consecutive: bool = False, later: bool = False) -> None:
    """Let the queries of each rank meet the keys of each rank.

    consecutive: each rank has one piece of the sequence. later: `share` is called for another sequence before that.
    """
    shares = _share(answer, length, size)
    if later:
        _share(answer, 2 * length, size + 1)
    if consecutive:
        shares = [_like(shares[0], piece) for piece in np.array_split(np.arange(length), size)]
    rows = [_positions(share) for share in shares]
    for step, rank in itertools.product(range(size), range(size)):
        source = (rank - step) % size
        got = answer.call("meet", shares[rank], shares[source])
        demand(RECTANGLES, Met(length, size, consecutive, later, rank, source, rows[rank], rows[source], got))


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray | torch.Tensor) and value.ndim > 0)


def _first(found: Iterable[Any]) -> Any:
    return next(iter(found), None)


# -- facts of share --


def _positions(share: Any) -> Any:
    """Return a rank's positions as an array; None where they are no row of ints."""
    try:
        if isinstance(share, list | tuple | range) and not any(isinstance(i, bool) for i in share):
            return np.array([operator.index(i) for i in share], np.int64)
        if isinstance(share, np.ndarray | torch.Tensor) and share.ndim == 1:
            array = to_numpy(share)
            return array.astype(np.int64) if array.dtype.kind in "iu" else None
    except (TypeError, ValueError, OverflowError, RuntimeError):  # no ints, too large ones, a tensor without numbers
        pass
    return None


def _like(share: Any, piece: np.ndarray) -> Any:
    """Return consecutive positions in the type of a share."""
    if isinstance(share, range):
        return range(piece[0], piece[-1] + 1)
    if isinstance(share, torch.Tensor):
        return share.new_tensor(piece)
    if isinstance(share, np.ndarray):
        return piece.astype(share.dtype)
    return tuple(piece.tolist()) if isinstance(share, tuple) else piece.tolist()


class Work(NamedTuple):
    """The numbers of visible pairs in a step: the largest, on `rank`, and the smallest, on the `other`."""

    step: int
    most: int
    rank: int
    least: int
    other: int


@dataclass(frozen=True)
class Shared:
    """What share(length, size) returned."""

    length: int
    size: int
    got: Any

    # Its form.

    nothing = property(lambda self: self.got is None)
    items = property(lambda self: [*self.got] if _is_list(self.got) else [])
    rows = functools.cached_property(lambda self: [_positions(share) for share in self.items])
    no_lists = property(lambda self: len(self.rows) != self.size or any(row is None for row in self.rows))
    one_list = property(lambda self: self.items and _positions(self.got) is not None)
    iterator = property(lambda self: any(hasattr(value, "__next__") for value in [self.got, *self.items]))
    parts = property(lambda self: [part for share in self.items if _is_list(share) for part in share])
    nested = property(lambda self: any(_positions(part) is not None for part in self.parts))

    # Which tokens.

    tokens = property(lambda self: np.concatenate(self.rows))
    outside = property(lambda self: self.tokens[(self.tokens < 0) | (self.tokens >= self.length)].tolist())
    from_one = property(lambda self: sorted(self.tokens) == [*range(1, self.length + 1)])
    times = property(lambda self: np.bincount(self.tokens, minlength=self.length))
    doubled = property(lambda self: np.flatnonzero(self.times > 1).tolist())
    lost = property(lambda self: np.flatnonzero(self.times == 0).tolist())
    rest_lost = property(lambda self: not self.even and self.lost == [*range(self.lost[0], self.length)])
    unsorted = property(lambda self: [r for r, row in enumerate(self.rows) if (np.diff(row) < 0).any()])

    # How many, and how much work.

    even = property(lambda self: self.length % (2 * self.size) == 0)
    counts = property(lambda self: [len(row) for row in self.rows])
    unequal = property(lambda self: max(self.counts) - min(self.counts) > (0 if self.even else 2))
    pieces = property(lambda self: all(len(row) and np.ptp(row) == len(row) - 1 for row in self.rows))
    shrinking = property(lambda self: self.pieces and self.counts == sorted(self.counts, reverse=True))

    @functools.cached_property
    def work(self) -> Work | None:
        """In the first step in which ranks have too unequal work; None: there is no such step."""
        for step in range(self.size):
            keys = [self.rows[(rank - step) % self.size] for rank in range(self.size)]
            pairs = [int(np.searchsorted(k, q, "right").sum()) for q, k in zip(self.rows, keys, strict=True)]
            if max(pairs) - min(pairs) > self.bound:
                return Work(step, max(pairs), pairs.index(max(pairs)), min(pairs), pairs.index(min(pairs)))
        return None

    means = property(lambda self: [self.rows[rank].mean() for rank in (self.work.rank, self.work.other)])

    # What sentences show.

    call = property(lambda self: f"share({self.length}, {self.size})")
    lists = property(lambda self: counted(self.size, "list"))
    last = property(lambda self: self.length - 1)
    bound = property(lambda self: 2 * max(self.counts))
    closeness = property(lambda self: "equally many tokens on all ranks" if self.even else DIFFER)
    shown = property(lambda self: short(self.got))
    shown_lost = property(lambda self: short(self.lost, 40))
    shown_row = property(lambda self: short(self.rows[self.unsorted[0]].tolist()))
    holders = property(lambda self: named([r for r, row in enumerate(self.rows) if self.doubled[0] in row]))


# -- facts of meet --


class Rectangle(NamedTuple):
    """queries, keys: indices. given: the tuple of an answer."""

    queries: np.ndarray
    keys: np.ndarray
    causal: bool
    given: Any = ()

    def __str__(self) -> str:
        first, second = (f"{s.start}:{s.stop}".replace("None", "") for s in self.given[:2])
        return f"({first}, {second}, {self.causal})"


@dataclass(frozen=True)
class Met:
    """What meet returned for the queries of `rank` and the keys of `source`. queries, keys: positions."""

    length: int
    size: int
    consecutive: bool
    later: bool
    rank: int
    source: int
    queries: np.ndarray
    keys: np.ndarray
    got: Any

    # Its form.

    def read(self, item: Any) -> Rectangle | None:
        """Return a rectangle; None where the item is none."""
        if isinstance(item, list | tuple) and len(item) == 3 and all(isinstance(part, slice) for part in item[:2]):
            try:
                queries, keys = np.arange(len(self.queries))[item[0]], np.arange(len(self.keys))[item[1]]
                return Rectangle(queries, keys, bool(item[2]), item) if item[2] in (True, False) else None
            except (TypeError, ValueError, RuntimeError):  # slices of floats, for instance
                return None
        return None

    nothing = property(lambda self: self.got is None)
    no_list = property(lambda self: not isinstance(self.got, list | tuple))
    bare = property(lambda self: self.read(self.got))
    no_rectangles = property(lambda self: self.no_list or not all(map(self.read, self.got)))
    given = functools.cached_property(lambda self: [self.read(item) for item in self.got])
    found = property(lambda self: [each for each in self.given if len(each.queries) and len(each.keys)])

    # Its pairs.

    visible = functools.cached_property(lambda self: self.keys <= self.queries[:, None])
    times = functools.cached_property(lambda self: self.cover(self.found))
    invisible = property(lambda self: (self.times > 0) & ~self.visible)
    twice = property(lambda self: self.times > 1)
    missing = property(lambda self: (self.times == 0) & self.visible)
    not_square = property(lambda self: self.first(lambda each: each.causal and len(each.queries) != len(each.keys)))
    wasted = property(lambda self: self.invisible.any())
    repeated = property(lambda self: self.twice.any())
    incomplete = property(lambda self: self.missing.any())
    too_many = property(lambda self: len(self.found) > MOST)

    def cover(self, rectangles: Iterable[Rectangle]) -> np.ndarray:
        """Return how often each pair is computed."""
        times = np.zeros((len(self.queries), len(self.keys)), int)
        for queries, keys, causal, _ in rectangles:
            times[np.ix_(queries, keys)] += np.tri(len(queries), len(keys), 0 if causal else len(keys), int)
        return times

    def right(self, rectangles: Iterable[Rectangle]) -> bool:
        return np.array_equal(self.cover(rectangles), self.visible)

    def first(self, holds: Callable[[Rectangle], object]) -> Rectangle | None:
        return _first(each for each in self.found if holds(each))

    def seen(self, each: Rectangle) -> np.ndarray:
        """Return which pairs of a rectangle are visible, whether it is causal or not."""
        return self.visible[np.ix_(each.queries, each.keys)]

    # What known mistakes make of them.

    @property
    def by_position(self) -> bool:
        """Whether the slices are right if they take positions."""
        numbers = np.arange(self.length)
        taken = ((np.isin(self.queries, numbers[q]), np.isin(self.keys, numbers[k]), c) for q, k, c in self.got)
        return self.right(Rectangle(np.flatnonzero(q), np.flatnonzero(k), causal) for q, k, causal in taken)

    uneven = property(lambda self: self.length % (2 * self.size))
    exchanged = property(lambda self: self.right(self.read((k, q, causal)) for q, k, causal in self.got))
    strict = property(lambda self: np.array_equal(self.missing, self.keys == self.queries[:, None]))
    masked = property(lambda self: len(self.found) == 1 and self.times.all() and not self.found[0].causal)
    own_full = property(lambda self: self.rank == self.source and not any(each.causal for each in self.found))
    unseen = property(lambda self: self.first(lambda each: not self.seen(each).any()))
    below = property(lambda self: self.first(lambda each: each.causal and not self.seen(each).diagonal().any()))
    partly = property(lambda self: self.first(lambda each: not each.causal and not self.seen(each).all()))
    empty = property(lambda self: not self.given)
    halved = property(
        lambda self: self.first(lambda each: each.causal and len(each.keys) > 1 and self.seen(each).all())
    )
    single_queries = property(lambda self: all(len(each.queries) == 1 for each in self.found))

    # What sentences show.

    @property
    def call(self) -> str:
        if self.consecutive:
            queries, keys = (f"{row[0]} to {row[-1]}" for row in (self.queries, self.keys))
            return f"meet(queries {queries}, keys {keys})"
        return f"meet(shares[{self.rank}], shares[{self.source}]) with shares = share({self.length}, {self.size})"

    shown = property(lambda self: short(self.got))
    rectangles = property(lambda self: ", ".join(map(str, self.given[:4])) + ", ..." * (len(self.given) > 4))
    number = property(lambda self: len(self.found))

    def some(self, pairs: np.ndarray) -> str:
        """Return the number of pairs, and the positions of the first one."""
        query, key = (int(row[i]) for row, i in zip((self.queries, self.keys), np.argwhere(pairs)[0], strict=True))
        number = counted(int(pairs.sum()), "pair")
        return f"{number}, such as the query at {query} and the key at {key}, by {self.rectangles or 'no rectangle'}"


# -- what is said --

DIFFER = "numbers of tokens that differ by at most 2"
PIECES = "Each rank has one piece of the sequence"
LISTS = rules(
    nothing="Nothing came back: is the list returned?",
    one_list="That is one list of numbers. Each rank has a list of its own.",
    iterator="An iterator is empty once it has been read. list(...) makes a list of it.",
    nested="A rank with several pieces has one list: put the positions of its pieces one after the other.",
    otherwise="A list has an item for each rank: the list of its positions, which are ints.",
)
WHYS_LOST = rules(
    rest_lost="These are the last positions. Are they what remains of a division that is rounded down?",
    otherwise="Each token needs a rank that computes what its query sees.",
)
WHYS_DOUBLED = rules(
    lost="No rank has {shown_lost}. Which piece is taken twice, and which one never?",
    otherwise="A token is on one rank only.",
)
WHYS_UNEQUAL = rules(
    shrinking=f"{PIECES}, and none is longer than the one before it. This can make the sum of all steps equal. But the "
    "ranks then need unequal memory, and in a single step their work is unequal.",
    otherwise="Cut the sequence into pieces whose lengths differ by a token at most, and share what remains of a "
    "division.",
)
WHYS_WORK = rules(
    pieces=f"{PIECES}. In step {{work.step}} the queries of rank {{work.rank}} come after all keys that they meet. "
    "Those of rank {work.other} come before all of them, and rank {work.other} waits.",
    otherwise="On average the tokens of rank {work.rank} are at position {means[0]:.1f}, and those of rank "
    "{work.other} at {means[1]:.1f}. Later queries see more keys. Give all ranks early and late tokens alike.",
)
WHYS_OUTSIDE = rules(from_one="These positions count from 1.", otherwise="The sequence has {length} tokens.")
UNSORTED = "Query i of an ascending list sees all keys that query i - 1 sees. So visible pairs are in few rectangles."
EACH = "each position from 0 to {last} on one rank, from {call}"
WORK = "visible pairs in step {work.step} that differ by at most {bound} between ranks, from {call}"
SHARES = tests(
    no_lists=("{lists} of positions from {call}", "{shown}", LISTS),
    outside=(EACH, "also {outside[0]}", WHYS_OUTSIDE),
    doubled=(EACH, "position {doubled[0]} more than once, on {holders}", WHYS_DOUBLED),
    lost=(EACH, "no rank with {shown_lost}", WHYS_LOST),
    unsorted=("an ascending list for rank {unsorted[0]} from {call}", "{shown_row}", UNSORTED),
    unequal=("{closeness} from {call}", "{counts}", WHYS_UNEQUAL),
    work=(WORK, "{work.most} on rank {work.rank}, {work.least} on rank {work.other}", WHYS_WORK),
)

USUAL = rules(
    later="After share({length}, {size}), share was called for another sequence, and then meet for the first one. Does "
    "meet use something that the last call of share has left? Its arguments are all that it needs.",
    consecutive="With the lists that `share` returns, meet was right. Here each rank has one piece of the sequence. "
    "Does meet suppose something that is not true of these lists? Compare positions.",
    by_position="These slices are right if they take positions. But they take items of the two lists, as queries[0:2] "
    "takes the first two queries.",
    exchanged="The other way round this is right: the first slice takes queries, and the second one takes keys.",
    uneven="With lengths that 2 * size divides, meet was right. Here it does not divide {length}, so lists, or the "
    "pieces in them, are not all equally long. Does meet suppose that they are? Compare positions.",
)
WHYS_INVISIBLE = rules(
    masked="This rectangle contains all pairs. Each of them is computed, because causal is False, and nothing masks it "
    "later.",
    own_full="A rank's own queries do not see all of its own keys. causal=True leaves out the later ones.",
    unseen="In {unseen} all keys are later than all queries. This rectangle is not needed.",
    below="In {below} key i is later than query i. causal=True takes keys 0 to i, and so key i, too.",
    partly="In {partly} some pairs are visible, and others are not. Cut it where the number of keys that a query sees "
    "changes.",
    otherwise="In each pair of a rectangle, the key's position must not be larger than the query's.",
)
WHYS_MISSING = rules(
    empty="An empty list says that no query sees a key. Rank {rank} has queries after keys of rank {source}.",
    strict="A query sees its own key, too: the key's position is not larger than the query's.",
    halved="In {halved} each query sees each key. With causal=True, query i is computed with keys 0 to i only.",
    otherwise="A query sees each key whose position is not larger than its own.",
)
MERGED = "The products of all rectangles are merged, so a key that is computed twice counts twice."
SQUARE = (
    "With causal=True, query i takes keys 0 to i of as many. Keys that all queries see are a rectangle of their own."
)
RECTANGLE = "A rectangle is a tuple of a slice of queries, a slice of keys, and a bool: True or False."
FORM = rules(
    nothing="None is no list. If no pair is visible, the list is empty.",
    bare="That is one rectangle. Put it into a list, even if it is the only one.",
    otherwise=RECTANGLE,
)
FEW = rules(
    single_queries="Each of them has one query. Queries that see the same keys belong in one rectangle.",
    otherwise="Which of them can be one? If none can, the lists of `share` have too many small pieces.",
)
RECTANGLES = tests(
    no_rectangles=("a list of rectangles from {call}", "{shown}", FORM),
    not_square=("as many keys as queries in a causal rectangle, from {call}", "{not_square}", [*USUAL, SQUARE]),
    wasted=("no pair of a query and a later key from {call}", lambda f: f.some(f.invisible), [*USUAL, *WHYS_INVISIBLE]),
    repeated=("no pair twice from {call}", lambda f: f.some(f.twice), [*USUAL, MERGED]),
    incomplete=("all visible pairs from {call}", lambda f: f"all but {f.some(f.missing)}", [*USUAL, *WHYS_MISSING]),
    too_many=(f"at most {MOST} rectangles from {{call}}", "{number}: {rectangles}", FEW),
)
