"""Tensor parallelism over ranks (Megatron-LM, Shoeybi et al. 2019): each rank has a part of a layer's weights.

All ranks of the axis get the same input and compute the same loss. So training minimises one loss, not a sum of losses,
and two functions are enough, each the other's backward (the paper's f and g):

             forward        backward
copy_in      identity       all-reduce: each rank's part of the layer has a part of the input's gradient
sum_out      all-reduce     identity: what follows the sum is the same on all ranks, and so is its gradient

A layer's `comm` is the communicator of the tensor axis, or None for a rank that has the whole layer.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.common.comm import Comm
from mpcourse.model_parallel.collective import summed


class _CopyIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, x: torch.Tensor) -> torch.Tensor:
        ctx.comm = comm
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, summed(ctx.comm, gradients[0])


class _SumOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, x: torch.Tensor) -> torch.Tensor:
        return summed(comm, x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, gradients[0]


def copy_in(comm: Comm | None, x: torch.Tensor) -> torch.Tensor:
    """Return x, which is the same on all ranks, for a layer that is split over the ranks.

    comm: the tensor axis's communicator, whose ranks all call this, and run backward; None: one rank.
    x: of any shape and dtype, the same values on all ranks.
    """
    return x if comm is None or comm.size == 1 else _CopyIn.apply(comm, x)


def sum_out(comm: Comm | None, x: torch.Tensor) -> torch.Tensor:
    """Return the sum of x over all ranks, on each of them.

    comm: the tensor axis's communicator, whose ranks all call this; None: one rank. In backward no message is sent.
    x: of one shape and dtype on all ranks.
    """
    return x if comm is None or comm.size == 1 else _SumOut.apply(comm, x)


def share(comm: Comm | None, length: int, what: str) -> slice:
    """Return which rows are this rank's: as many as each other rank has.

    comm: the tensor axis's communicator; None: one rank. No message is sent.
    length: number of rows to be shared.
    what: how the error calls them.
    Raises ValueError where they cannot be shared equally.
    """
    if comm is None:
        return slice(0, length)
    if length % comm.size:
        raise ValueError(f"{length} {what} cannot be shared alike by {comm.size} ranks")
    each = length // comm.size
    return slice(comm.rank * each, (comm.rank + 1) * each)


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    """Make a layer with copies of `weight` (out, in) and `bias` (out,)."""
    made = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    made.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        made.bias = nn.Parameter(bias.detach().clone())
    return made


class ParallelMLP(nn.Module):
    """A transformer's feed-forward block, `first`, GELU, `second`: the first cut by columns, the second by rows.

    Takes and returns (..., width), the same on all ranks.
    comm: the tensor axis's communicator, all of whose ranks make one together; None: one rank.
    first: Linear(width, hidden), the same on all ranks; this rank's share is copied.
    second: Linear(hidden, width), the same on all ranks; this rank's share is copied.

    Each rank has hidden / p units, which do not need each other's: one all-reduce forward, one backward.
    Raises ValueError where the units cannot be shared equally.
    """

    def __init__(self, comm: Comm | None, first: nn.Linear, second: nn.Linear) -> None:
        super().__init__()
        own = share(comm, first.out_features, "hidden units")
        self.comm = comm
        self.first = _linear(first.weight[own], None if first.bias is None else first.bias[own])
        self.second = _linear(second.weight[:, own], None)
        self.bias = None if second.bias is None else nn.Parameter(second.bias.detach().clone())  # added once

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        partial = self.second(F.gelu(self.first(copy_in(self.comm, x))))
        total = sum_out(self.comm, partial)
        return total if self.bias is None else total + self.bias

    def sharded(self) -> list[nn.Parameter]:
        """Return the parameters that are split over the ranks. All others are the same on all ranks."""
        return [*self.first.parameters(), *self.second.parameters()]


class ParallelAttention(nn.Module):
    """Causal self-attention, each rank with its share of the heads.

    Takes and returns (batch, length, width), the same on all ranks.
    comm: the tensor axis's communicator, all of whose ranks make one together; None: one rank.
    qkv: Linear(width, 3 width); its outputs are queries, keys and values, each head by head; the same on all ranks.
    out: Linear(width, width), the same on all ranks.
    heads: number of heads on all ranks together.

    There is one all-reduce forward, one backward.
    Raises ValueError where heads cannot be shared equally.
    """

    def __init__(self, comm: Comm | None, qkv: nn.Linear, out: nn.Linear, heads: int) -> None:
        super().__init__()
        self.comm, self.head = comm, out.in_features // heads
        mine = share(comm, heads, "heads")
        own = slice(mine.start * self.head, mine.stop * self.head)
        weights = torch.cat([w[own] for w in qkv.weight.chunk(3)])
        bias = None if qkv.bias is None else torch.cat([b[own] for b in qkv.bias.chunk(3)])
        self.qkv = _linear(weights, bias)
        self.out = _linear(out.weight[:, own], None)
        self.bias = None if out.bias is None else nn.Parameter(out.bias.detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (self._by_head(part) for part in self.qkv(copy_in(self.comm, x)).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        total = sum_out(self.comm, self.out(mixed))
        return total if self.bias is None else total + self.bias

    def _by_head(self, x: torch.Tensor) -> torch.Tensor:
        """Reshape (batch, length, heads * head) to (batch, heads, length, head)."""
        return x.unflatten(2, (-1, self.head)).transpose(1, 2)

    def sharded(self) -> list[nn.Parameter]:
        """Return the parameters that are split over the ranks. All others are the same on all ranks."""
        return [*self.qkv.parameters(), *self.out.parameters()]


def sharded_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are split over the ranks of the tensor axis.

    module: its layers are searched.
    """
    return [p for m in module.modules() if isinstance(m, ParallelMLP | ParallelAttention) for p in m.sharded()]
