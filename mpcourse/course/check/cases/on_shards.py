"""Cases of e11_shard, who owns what in them, and what programs with known mistakes would say."""

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

Piece = tuple[int, int, int]
Owned = list[list[Piece]]
Place = tuple[int, int, int]  # a parameter's number, and where it begins and ends in the buffer


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
    """The arguments: tensors of these kinds, all with equal values, and a number of ranks."""

    kinds: tuple[Kind, ...]
    ranks: int

    def __str__(self) -> str:
        return f"shards([{', '.join(map(str, self.kinds))}], {self.ranks})"

    def tensors(self) -> list[torch.Tensor]:
        made: list[torch.Tensor] = []
        for kind in self.kinds:
            new = torch.ones(kind.shape, requires_grad=not kind.frozen) if kind.of is None else made[kind.of]
            made.append(new)
        return made


class Rule(NamedTuple):
    """One part of the answer: how it is computed, and, of a wrong one, what is wrong about it."""

    value: Callable[..., Any]
    why: str = ""


def _side_by_side(numels: Sequence[tuple[int, int]]) -> list[Place]:
    """Places of (number, elements), one after the other."""
    ends = list(itertools.accumulate(n for _, n in numels))
    return [(i, end - n, end) for (i, n), end in zip(numels, ends, strict=True)]


def trained(kinds: Sequence[Kind]) -> list[tuple[int, Kind]]:
    """The trained ones, each once."""
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


_IDENTITY = (
    "Two parameters with equal shapes and values are two: a tied one is the same object, which `is` and id(p) tell."
)
_NUMBER = "i is the number in the list that was given, in which frozen, tied and empty parameters count, too."
_ONE_LENGTH = "Collective calls take chunks of one length: "
# Of each part the right rule comes first. Places of parameters in the buffer:
PLACES = (
    Rule(lambda kinds: _side_by_side([(i, k.numel) for i, k in trained(kinds)])),
    Rule(
        lambda kinds: _side_by_side([(i, k.numel) for i, k in enumerate(kinds) if not _frozen(kinds, k)]),
        "A tied parameter is counted twice. It is one tensor with one gradient, and would be updated twice.",
    ),
    Rule(
        lambda kinds: _side_by_side([(i, k.numel) for i, k in enumerate(kinds) if k.of is None]),
        "Frozen parameters are counted: no optimizer updates them, and the buffer holds what is trained.",
    ),
    Rule(
        lambda kinds: _side_by_side([(i, k.numel) for i, k in enumerate(kinds)]),
        "The buffer holds what is trained, each tensor once: frozen and tied ones are counted here.",
    ),
    Rule(lambda kinds: _side_by_side([(i, k.numel) for i, k in _unlike(kinds)]), _IDENTITY),
    Rule(
        lambda kinds: _side_by_side([(_last_number(kinds, i), k.numel) for i, k in trained(kinds)]),
        "i is the number of a tied parameter's first place in the list, not of its last one.",
    ),
    Rule(
        lambda kinds: _side_by_side(list(_last(kinds))),
        "A tied parameter stands at its first place in the list, not at its last one.",
    ),
    Rule(
        lambda kinds: _side_by_side([(number, k.numel) for number, (_, k) in enumerate(trained(kinds))]),
        _NUMBER,
    ),
    Rule(
        lambda kinds: _side_by_side([(sum(map(_filled, kinds[:i])), k.numel) for i, k in trained(kinds) if _filled(k)]),
        _NUMBER,
    ),
    Rule(
        lambda kinds: _side_by_side([(sum(k.of is None for k in kinds[:i]), k.numel) for i, k in trained(kinds)]),
        _NUMBER,
    ),
    Rule(
        lambda kinds: _side_by_side([(i, 4 * k.numel) for i, k in trained(kinds)]),
        "That counts bytes. Places are counted in elements, whatever their dtype.",
    ),
    Rule(
        lambda kinds: _side_by_side([(i, k.shape[0] if k.shape else 1) for i, k in trained(kinds)]),
        "That counts rows. A parameter has p.numel() elements, the product of its shape.",
    ),
    Rule(
        lambda kinds: _side_by_side([(i, k.numel) for i, k in trained(kinds) if k.shape]),
        "A parameter of shape () is left out. It has one element.",
    ),
    Rule(
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
    Rule(_cut(lambda n, p: -(-n // p))),
    Rule(
        _cut(lambda n, p: n // p),
        "The chunk's length was rounded down, so the last elements are nobody's, and never updated. Round up.",
    ),
    Rule(
        _with_rest,
        f"{_ONE_LENGTH}here the last rank's is longer, for it takes the rest of n // ranks. Round up instead.",
    ),
    Rule(_one_longer, f"{_ONE_LENGTH}here the first n % ranks ones are one longer, as np.array_split cuts. Round up."),
    Rule(_cut(lambda n, p: round(n / p)), "round goes down as often as up: the chunk's length is always rounded up."),
    Rule(_cut(lambda n, p: n // p + 1), "n // ranks + 1 is one too many where ranks divide n: round up only if not."),
    Rule(
        lambda n, p: [(r * n // p, (r + 1) * n // p) for r in range(p)],
        f"{_ONE_LENGTH}borders at r n / p, rounded down, make some one longer. Round the length up, once.",
    ),
    Rule(
        lambda n, p: [(max(0, begin - -n % p), end - -n % p) for begin, end in _cut(lambda n, p: -(-n // p))(n, p)],
        "The padding is in front. It is at the end of the buffer: the last ranks own less, not the first.",
    ),
    Rule(
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
    Rule(_pieces(_in_parameter)),
    Rule(
        _pieces(lambda begin, end, at, chunk: (begin, end)),
        "begin and end are places in the flat buffer. They are to be counted from where the parameter begins.",
    ),
    Rule(
        _pieces(lambda begin, end, at, chunk: (begin - chunk[0], end - chunk[0])),
        "begin and end are places in the rank's chunk. They are to be counted from where the parameter begins.",
    ),
    Rule(
        _pieces(lambda begin, end, at, chunk: (begin - at[1], end - at[1] - 1)),
        "end is the last element of the piece. It is to be one more: p.flatten()[begin:end] is the piece.",
    ),
    Rule(
        _pieces(lambda begin, end, at, chunk: (begin - at[1], end - begin)),
        "The third number is the length of the piece. It is to be its end in the parameter, end not included.",
    ),
    Rule(
        _padded,
        "Padding is given out as elements of the last parameter, which has no more than p.numel(): it is nobody's.",
    ),
    Rule(
        _pieces(lambda begin, end, at, chunk: (0, at[2] - at[1])),
        "A parameter is given whole to each rank that owns a part of it: give each rank its own part alone.",
    ),
    Rule(
        _pieces(lambda begin, end, at, chunk: (0, end - begin)),
        "Each piece begins at 0. Where a parameter began in an earlier chunk, its piece begins where that one ended.",
    ),
)
PARTS = (PLACES, CHUNKS, PIECES)
RIGHT = [part[0] for part in PARTS]


def owned(case: ShardCase, rules: Sequence[Rule] = RIGHT) -> Owned:
    """What the rules make of a case; the right ones, unless told."""
    places, chunks, pieces = (rule.value for rule in rules)
    at = places(case.kinds)
    return pieces(at, chunks(at[-1][2] if at else 0, case.ranks))


def _each_alone(case: ShardCase, chunks: Rule) -> Owned:
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
