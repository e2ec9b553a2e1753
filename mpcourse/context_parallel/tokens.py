"""Which tokens of a sequence each rank has."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch

from mpcourse.collectives.buffers import offsets
from mpcourse.common.comm import Comm

Tensor = torch.Tensor
Part = tuple[range, ...]  # the positions of a rank's tokens, in ascending order


def contiguous(length: int, size: int) -> list[Part]:
    """Give each rank one piece of the sequence. Under a causal mask, the last rank has the most work.

    length: tokens of the sequence.
    size: ranks. Pieces differ by one token at most.
    """
    return [(range(*both),) for both in pairwise(offsets(length, size))]


def zigzag(length: int, size: int) -> list[Part]:
    """Give rank r pieces r and 2 p - 1 - r of 2 p, an early one and a late one. All ranks have the same causal work.

    length: tokens of the sequence.
    size: ranks, p. Pieces differ by one token at most.

    Source: Zilin Zhu, https://github.com/zhuzilin/ring-flash-attention/issues/2, 2024; Llama 3 (section 3.3.2) uses it.
    """
    pieces = [range(*both) for both in pairwise(offsets(length, 2 * size))]
    return [(pieces[rank], pieces[2 * size - 1 - rank]) for rank in range(size)]


def striped(length: int, size: int) -> list[Part]:
    """Give rank r the tokens r, r + p, r + 2 p and so on.

    length: tokens of the sequence.
    size: ranks, p.

    Source: William Brandon and others, Striped Attention, 2023, https://arxiv.org/abs/2311.09431.
    """
    return [(range(rank, length, size),) for rank in range(size)]


LAYOUTS: dict[str, Callable[[int, int], list[Part]]] = {
    "contiguous": contiguous, "zigzag": zigzag, "striped": striped,
}  # fmt: skip


class Seen(NamedTuple):
    """A rectangle of attention: some of a rank's queries, and some keys of the same or another rank, that they see.

    queries, keys: among this rank's tokens, and among the other rank's.
    causal: query i sees keys 0 to i only, and there are as many of both. Otherwise each query sees each key.
    """

    queries: slice
    keys: slice
    causal: bool


def seen(mine: Part, theirs: Part) -> list[Seen]:
    """Return what the queries of one part see of the keys of another one, under a causal mask.

    mine, theirs: parts of one layout.
    """
    if mine == theirs:
        whole = slice(0, sum(map(len, mine)))
        return [Seen(whole, whole, True)]
    if len(mine) == 1 and mine[0].step > 1:
        return _seen_of_stripes(mine[0], theirs[0])
    found: list[Seen] = []
    begin = 0
    for piece in mine:
        keys = sum(len(other) for other in theirs if other.start < piece.start)
        end = begin + len(piece)
        if found and found[-1].keys.stop == keys:
            found[-1] = Seen(slice(found[-1].queries.start, end), slice(0, keys), False)
        elif keys:
            found.append(Seen(slice(begin, end), slice(0, keys), False))
        begin = end
    return [each for each in found if each.queries.start < each.queries.stop]


def _seen_of_stripes(mine: range, theirs: range) -> list[Seen]:
    if theirs.start < mine.start:
        return [Seen(slice(0, len(mine)), slice(0, len(mine)), True)]
    return [Seen(slice(1, len(mine)), slice(0, len(mine) - 1), True)] if len(mine) > 1 else []


class SharedSequence:
    """A sequence, or a batch of sequences of one length, whose tokens are shared by ranks. All ranks make one together.

    comm: the context axis's communicator; None: one rank, which has all tokens.
    length: tokens of the whole sequence. The ranks need not divide it.
    layout: "contiguous", "zigzag" or "striped".
    documents: int64 (length,) or (batch, length), the number of each token's document, the same on all ranks. A token
    sees only tokens of its own document. Document -1 is padding: its tokens see nothing, and no token sees them. None:
    all tokens belong to one document.

    `parts` has the positions of each rank's tokens, `positions` this rank's, int64. No message is sent.
    Raises ValueError for another layout, fewer tokens than each rank needs, and documents of another length.
    """

    def __init__(self, comm: Comm | None, length: int, layout: str = "zigzag", documents: Tensor | None = None) -> None:
        if layout not in LAYOUTS:
            raise ValueError(f"layout is {', '.join(map(repr, LAYOUTS))}, not {layout!r}")
        self.comm, self.length, self.layout = comm, length, layout
        self.size, self.rank = (1, 0) if comm is None else (comm.size, comm.rank)
        pieces = self.size * (2 if layout == "zigzag" else 1)
        if length < pieces:
            raise ValueError(f"{length} tokens cannot be shared by {self.size} ranks: {layout} needs {pieces} at least")
        if documents is not None:
            documents = documents.cpu().reshape(-1, documents.shape[-1])
            if documents.shape[1] != length:
                raise ValueError(f"documents has {documents.shape[1]} tokens, and the sequence {length}")
        self.documents = documents
        self.parts = LAYOUTS[layout](length, self.size)
        self.positions = self.positions_of(self.rank)

    def positions_of(self, rank: int) -> Tensor:
        """Return the positions of a rank's tokens, int64 (tokens,), in ascending order.

        rank: of `comm`.
        """
        return torch.cat([torch.arange(p.start, p.stop, p.step, device="cpu") for p in self.parts[rank]])

    def tokens_of(self, rank: int) -> int:
        """Return how many tokens a rank has.

        rank: of `comm`.
        """
        return sum(map(len, self.parts[rank]))

    def own(self, x: Tensor, dim: int = 1) -> Tensor:
        """Return this rank's tokens of a whole tensor, in a new one.

        x: has all tokens along `dim`.
        dim: the dimension of tokens.
        Raises ValueError for another number of tokens.
        """
        if x.shape[dim] != self.length:
            raise ValueError(f"dimension {dim} has {x.shape[dim]} tokens, and the sequence {self.length}")
        return x.index_select(dim, self.positions.to(x.device))

    def whole(self, x: Tensor, dim: int = 1) -> Tensor:
        """Return the tokens of all ranks, in order, on the CPU: for tests and files. All ranks call it.

        x: has this rank's tokens along `dim`.
        dim: the dimension of tokens.
        """
        part = x.detach().cpu()
        parts = [part] if self.comm is None else self.comm.allgather(part)
        return torch.cat(parts, dim).index_select(dim, self.in_order())

    def in_order(self) -> Tensor:
        """Return where each token is if the ranks' parts stand one after the other, int64 (length,)."""
        return torch.cat([self.positions_of(rank) for rank in range(self.size)]).argsort()

    def mask(self, queries: Tensor, keys: Tensor, device: torch.device, causal: bool) -> Tensor:
        """Return which keys the queries see, bool (queries, keys), or (batch, 1, queries, keys) with documents.

        queries, keys: int64, their positions.
        device: where the mask is made.
        causal: a query sees no later key.
        """
        visible = (keys <= queries[:, None]) if causal else torch.ones(len(queries), len(keys), dtype=torch.bool)
        if self.documents is not None:
            of_queries, of_keys = self.documents[:, queries], self.documents[:, keys]
            same = (of_queries[:, :, None] == of_keys[:, None]) & (of_keys >= 0)[:, None]
            visible = (same & visible)[:, None]
        return visible.to(device)

    def mask_of(self, part: Seen, rank: int, device: torch.device) -> Tensor | None:
        """Return the mask of a rectangle of this rank's queries and a rank's keys; None where there are no documents.

        part: the rectangle.
        rank: has the keys.
        device: where the mask is made.
        """
        if self.documents is None:
            return None
        return self.mask(self.positions[part.queries], self.positions_of(rank)[part.keys], device, part.causal)


def rectangles(tokens: SharedSequence, rank: int, causal: bool) -> Sequence[Seen]:
    """Return what this rank's queries see of a rank's keys.

    tokens: shared by the ranks.
    rank: has the keys.
    causal: a query sees no later key. Otherwise it sees all of them.
    """
    if causal:
        return seen(tokens.parts[tokens.rank], tokens.parts[rank])
    return [Seen(slice(0, len(tokens.positions)), slice(0, tokens.tokens_of(rank)), False)]
