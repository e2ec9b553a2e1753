"""Attention by heads, cut over ranks: as it is asked for, and as known mistakes compute it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

OVER = ("batch", "heads", "length")


@dataclass(frozen=True)
class Way:
    """How attention is computed; by default as it is asked for.

    rows: which rows of qkv a rank takes; bias_rows: of its bias. split, merge: how heads are told apart in the product,
    and put together again. over: the dimension along which queries and keys are compared. divisor: of the scores; 0:
    the square root of a head's width. mask: which keys a query sees. softmax: over which dimension of (batch, heads,
    queries, keys). columns: of out's weight.
    """

    rows: str = "of each third"
    bias_rows: str = ""
    split: str = "permuted"
    merge: str = "permuted"
    over: str = "length"
    divisor: float = 0.0
    mask: str = "causal"
    softmax: int = -1
    columns: str = "own"

    def parts(self, x: Tensor, weight: Tensor, bias: Tensor, out: Tensor, heads: int, size: int) -> list[Tensor]:
        """Return each rank's summand of the result, (length, batch, width), without out's bias.

        x: (length, batch, width). weight, bias: of qkv, (3 width, width) and (3 width,). out: (width, width). heads: of
        all `size` ranks together.
        """
        return [self._part(x, weight, bias, out, heads, rank, size) for rank in range(size)]

    def _part(
        self, x: Tensor, weight: Tensor, bias: Tensor, out: Tensor, all_heads: int, rank: int, size: int
    ) -> Tensor:
        length, batch, width = x.shape
        own = slice(rank * width // size, (rank + 1) * width // size)
        heads = all_heads if self.split == "all heads" else all_heads // size

        def thirds(whole: Tensor, rows: str) -> Sequence[Tensor]:
            if rows == "none":
                return [whole.new_zeros(width // size)] * 3
            if rows == "one block":
                return whole.chunk(size)[rank].chunk(3)
            if rows == "head by head":
                return [t.flatten(0, 1)[own] for t in whole.unflatten(0, (all_heads, 3, -1)).unbind(1)]
            return [third[own] for third in whole.chunk(3)]

        weights, biases = thirds(weight, self.rows), thirds(bias, self.bias_rows or self.rows)
        q, k, v = (self._heads(F.linear(x, w, b), heads) for w, b in zip(weights, biases, strict=True))
        scores = q @ k.transpose(-1, -2) / (self.divisor or math.sqrt(width // all_heads))
        mixed = self._shares(scores) @ v
        mixed = mixed.transpose(OVER.index(self.over), 2)  # (batch, heads, length, head)
        orders = {
            "permuted": (2, 0, 1, 3),
            "viewed": (0, 1, 2, 3),
            "heads only": (0, 2, 1, 3),
            "head first": (2, 0, 3, 1),
        }
        mixed = mixed.permute(orders[self.merge]).reshape(length, batch, -1)
        columns = {"strided": out[:, rank::size], "first": out.chunk(size, 1)[0], "rows": out[own].T}
        return mixed @ columns.get(self.columns, out[:, own]).T

    def _heads(self, made: Tensor, heads: int) -> Tensor:
        """(length, batch, heads head) -> (batch, heads, length, head)."""
        length, batch, part = made.shape
        if self.split == "viewed":
            return made.reshape(batch, heads, length, -1)
        if self.split == "batch first":
            return made.reshape(batch, length, heads, -1).transpose(1, 2)
        if self.split == "head first":
            return made.reshape(length, batch, part // heads, heads).permute(1, 3, 0, 2)
        return made.reshape(length, batch, heads, -1).permute(1, 2, 0, 3).transpose(OVER.index(self.over), 2)

    def _shares(self, scores: Tensor) -> Tensor:
        """Return how much each query takes of each key's value; nothing where it sees no key, as in torch."""
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool)
        hidden = {
            "causal": ones.triu(1), "zeros": ones.triu(1), "inverted": ones.tril(-1), "later alone": ones.tril()
        }.get(self.mask, ~ones)  # fmt: skip
        shares = scores.masked_fill(hidden, 0 if self.mask == "zeros" else -math.inf).softmax(self.softmax)
        return shares.nan_to_num(0) * (ones.tril() if self.mask == "after" else 1)
