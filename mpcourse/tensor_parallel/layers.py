"""A transformer's MLP and attention, each cut first by columns and then by rows: one sum over the ranks for two layers.

Activations are (length, batch, width) here, as in Megatron-LM: the rows that ranks share are the positions of tokens.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.collectives.tensors import own_rows
from mpcourse.common.comm import Comm
from mpcourse.tensor_parallel.linear import ColumnParallelLinear, RowParallelLinear
from mpcourse.tensor_parallel.mappings import copy_in
from mpcourse.tensor_parallel.overlapped import OverlappedColumnLinear, OverlappedRowLinear
from mpcourse.tensor_parallel.random_numbers import Generators, dropout
from mpcourse.tensor_parallel.recompute import recompute

Tensor = torch.Tensor
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def linears(overlap: bool) -> tuple[type[ColumnParallelLinear], type[RowParallelLinear]]:
    """Return the classes of a column-parallel and a row-parallel layer.

    overlap: messages travel while products are computed.
    """
    return (OverlappedColumnLinear, OverlappedRowLinear) if overlap else (ColumnParallelLinear, RowParallelLinear)


class ParallelMLP(nn.Module):
    """A transformer's feed-forward block, `first`, GELU, `second`. Each rank has some of the hidden units.

    Takes and returns (..., width), the same on all ranks; with `sequence` this rank's rows, (length / p, ..., width).
    comm: the tensor axis's communicator, all of whose ranks make one together; None: one rank.
    first: Linear(width, hidden), the same on all ranks; this rank's part is copied.
    second: Linear(hidden, width), the same on all ranks; this rank's part is copied.
    sequence: with sequence parallelism.
    overlap: messages travel while products are computed (overlapped.py).

    GELU works on each unit alone. There is one all-reduce forward and one backward. Numbers of hidden units differ by
    one at most between ranks.
    """

    def __init__(
        self, comm: Comm | None, first: nn.Linear, second: nn.Linear, sequence: bool = False, overlap: bool = False
    ) -> None:
        super().__init__()
        column, row = linears(overlap)
        self.first, self.second = column(comm, first, sequence), row(comm, second, sequence)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.gelu(self.first(x)))


class ParallelAttention(nn.Module):
    """Causal self-attention. Each rank has some of the heads, which do not need each other's results.

    Takes and returns (length, batch, width), the same on all ranks; with `sequence` this rank's rows of it.
    comm: the tensor axis's communicator, all of whose ranks make one together; None: one rank.
    qkv: Linear(width, (heads + 2 groups) head); its outputs are queries, keys and values, each head by head.
    out: Linear(heads head, width). Both are the same on all ranks; this rank's parts are copied.
    heads: number of heads of queries on all ranks together.
    groups: heads of keys and values, each for heads / groups heads of queries (Ainslie et al. 2023,
    grouped-query attention, https://arxiv.org/abs/2305.13245); None: as many as heads.
    sequence: with sequence parallelism.
    dropout: probability that an attention weight is dropped.
    generators: draw for dropout, this rank's own one, because its heads are its own.
    fused: attention is one call of torch's, which keeps no attention weights. Otherwise it is written out.
    again: the written-out attention keeps only queries, keys and values, and backward computes the rest once more
    (selective recomputation, Korthikanti et al. 2022, section 5).
    overlap: messages travel while products are computed (overlapped.py).
    attend: takes queries (batch, heads, length, head), and keys and values (batch, groups, length, head), of this
    rank's heads, and returns causal attention, (batch, heads, length, head), e.g. over ranks that share the tokens.
    None: torch's attention.

    With more ranks than groups, each group is on p / groups ranks, which hold equal copies of the weights of its keys
    and values, and add up their gradients.
    Raises ValueError where heads cannot be shared equally, where neither of groups and ranks divides the other, and
    where `fused` is combined with what only the written-out attention has, or its opposite with `attend`.
    """

    def __init__(
        self, comm: Comm | None, qkv: nn.Linear, out: nn.Linear, heads: int, groups: int | None = None, *,
        sequence: bool = False, dropout: float = 0.0, generators: Generators | None = None, fused: bool = True,
        again: bool = False, overlap: bool = False, attend: Attend | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if fused and (dropout or again):
            raise ValueError("dropout of attention weights, and their recomputation, need fused=False")
        if attend is not None and not fused:
            raise ValueError("attention over another axis needs fused=True")
        self.dropout, self.generators, self.fused, self.again = dropout, generators or Generators(comm), fused, again
        groups, self.head = groups or heads, out.in_features // heads
        if heads % groups:
            raise ValueError(f"{heads} heads of queries cannot be shared alike by {groups} heads of keys and values")
        own = own_rows(comm, heads, "heads")
        own_groups, copies = _own_groups(comm, groups)
        self.groups = len(own_groups)
        self.replicas = None if comm is None or copies == 1 else comm.Split(own_groups[0], comm.rank)
        # This rank's outputs of qkv, group by group: its heads of queries, then one of keys and one of values. So each
        # of the three is a view of the product, and nothing is copied.
        queries = torch.arange(own.start, own.stop, device="cpu").chunk(self.groups)
        self.heads = len(queries[0])  # of each group
        self.attend = attend or partial(F.scaled_dot_product_attention, is_causal=True, enable_gqa=self.heads > 1)
        order = [
            torch.cat([of_group, torch.tensor([heads + group, heads + groups + group], device="cpu")])
            for of_group, group in zip(queries, own_groups, strict=True)
        ]
        column, row = linears(overlap)
        self.qkv = column(comm, qkv, sequence, _elements(torch.cat(order), self.head))
        self.out = row(comm, out, sequence, _elements(torch.cat(queries), self.head))

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.qkv.bias is None else self._summed(self.qkv.bias)
        made = self.qkv.product(x, self._summed(self.qkv.weight), bias)
        by_group = made.unflatten(-1, (self.groups, -1))  # (length, batch, groups, (heads + 2) head)
        q, k, v = by_group.split([self.heads * self.head, self.head, self.head], -1)
        if self.fused:
            return self.out(self._fused(q, k, v))
        if self.again:
            return self.out(recompute(self._written_out, q, k, v, generators=self.generators))
        return self.out(self._written_out(q, k, v))

    def _summed(self, weight: Tensor) -> Tensor:
        """Add up, in backward, the gradients of keys' and values' weights over the ranks that hold the same ones."""
        if self.replicas is None:
            return weight
        queries, shared = weight.split([self.heads * self.head, 2 * self.head])
        return torch.cat([queries, copy_in(self.replicas, shared)])

    def _fused(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """(length, batch, groups, n head) -> (length, batch, groups heads head)."""
        q, k, v = (part.unflatten(-1, (-1, self.head)).flatten(2, 3).permute(1, 2, 0, 3) for part in (q, k, v))
        mixed = self.attend(q, k, v)
        return mixed.permute(2, 0, 1, 3).flatten(2)

    def _written_out(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """(length, batch, groups, n head) -> (length, batch, groups heads head).

        The heads of a group have the same keys, so their queries are rows of one product.
        """
        length, batch = q.shape[:2]
        k, v = k.flatten(1, 2).transpose(0, 1), v.flatten(1, 2).transpose(0, 1)  # (batch groups, length, head)
        q = q.flatten(1, 2).transpose(0, 1).reshape(len(k), length * self.heads, self.head)
        position = torch.arange(length, device=q.device)
        later = position > position.repeat_interleave(self.heads)[:, None]  # (length heads, length)
        nothing = torch.zeros(later.shape, dtype=q.dtype, device=q.device).masked_fill_(later, float("-inf"))
        scores = torch.baddbmm(nothing[None], q, k.transpose(1, 2), alpha=1 / math.sqrt(self.head))
        weights = dropout(scores.softmax(-1), self.dropout, self.generators.own)
        mixed = torch.bmm(weights, v).view(len(k), length, -1).transpose(0, 1)  # (length, batch groups, heads head)
        return mixed.reshape(length, batch, -1)


def _own_groups(comm: Comm | None, groups: int) -> tuple[range, int]:
    """Return this rank's groups, and on how many ranks each of them is."""
    size, rank = (1, 0) if comm is None else (comm.size, comm.rank)
    if groups % size == 0:
        return range(rank * groups // size, (rank + 1) * groups // size), 1
    if size % groups:
        raise ValueError(f"{groups} heads of keys and values cannot be shared alike by {size} ranks, nor they by these")
    copies = size // groups
    return range(rank // copies, rank // copies + 1), copies


def _elements(heads: Tensor, head: int) -> Tensor:
    """Return the indices of all elements of some heads, each of `head` elements."""
    return (heads[:, None] * head + torch.arange(head, device="cpu")).flatten()
