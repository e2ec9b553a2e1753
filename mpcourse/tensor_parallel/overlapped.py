"""Messages behind computation: asynchronous tensor parallelism, by pieces of the products.

The layers of `linear.py` wait for each message. With sequence parallelism, the product behind an all-gather can begin
with this rank's own rows, and go on with each other rank's as they arrive. The product before a reduce-scatter can
begin with other ranks' rows, and send each piece as soon as it is computed. Without sequence parallelism, only the
all-reduce in backward has something to hide behind: the weight's gradient.

Results differ from those of `linear.py` by the order of additions alone.

Source: Shibo Wang and others, Overlap Communication with Dependent Computation via Decomposition in Large Deep
Learning Models, 2023, https://doi.org/10.1145/3567955.3567959; torchtitan calls it asynchronous tensor parallelism.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from mpcourse.collectives.tensors import messages, own_rows, start_all_reduce
from mpcourse.common.comm import Comm
from mpcourse.tensor_parallel.linear import ColumnParallelLinear, RowParallelLinear

Tensor = torch.Tensor


class _GatheredLinear(torch.autograd.Function):
    """linear.py's, with messages behind products."""

    @staticmethod
    def forward(ctx: Any, comm: Comm, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.comm, ctx.has_bias = comm, bias is not None
        ctx.save_for_backward(x, weight)
        out = x.new_empty((comm.size * len(x), *x.shape[1:-1], len(weight)))
        for own, rows in _arriving(comm, x):
            out[own] = F.linear(rows, weight, bias)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        of_out = gradients[0]
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[1]:
            of_x = _scattered(ctx.comm, of_out, weight)
        if ctx.needs_input_grad[2]:
            of_weight = torch.zeros_like(weight)
            for own, rows in _arriving(ctx.comm, x):
                of_weight.addmm_(of_out[own].flatten(0, -2).T, rows.flatten(0, -2))
        if ctx.has_bias and ctx.needs_input_grad[3]:
            of_bias = of_out.flatten(0, -2).sum(0)
        return None, of_x, of_weight, of_bias


class _ScatteredLinear(torch.autograd.Function):
    """A product whose sum over ranks is shared by rows: `scatter_out(comm, F.linear(x, weight))`."""

    @staticmethod
    def forward(ctx: Any, comm: Comm, x: Tensor, weight: Tensor) -> Tensor:
        ctx.comm = comm
        ctx.save_for_backward(x, weight)
        return _scattered(comm, x, weight.T)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        of_x = torch.empty_like(x) if ctx.needs_input_grad[1] else None
        of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[2] else None
        for own, of_out in _arriving(ctx.comm, gradients[0].contiguous()):
            if of_x is not None:
                of_x[own] = of_out @ weight
            if of_weight is not None:
                of_weight.addmm_(of_out.flatten(0, -2).T, x[own].flatten(0, -2))
        return None, of_x, of_weight


class _CopiedLinear(torch.autograd.Function):
    """`F.linear(copy_in(comm, x), weight, bias)`, whose all-reduce runs while the weight's gradient is computed."""

    @staticmethod
    def forward(ctx: Any, comm: Comm, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.comm, ctx.has_bias = comm, bias is not None
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        of_out = gradients[0]
        of_weight = of_bias = None
        sum_of_x = start_all_reduce(ctx.comm, of_out @ weight) if ctx.needs_input_grad[1] else None
        if ctx.needs_input_grad[2]:
            of_weight = of_out.flatten(0, -2).T @ x.flatten(0, -2)
        if ctx.has_bias and ctx.needs_input_grad[3]:
            of_bias = of_out.flatten(0, -2).sum(0)
        return None, None if sum_of_x is None else sum_of_x(), of_weight, of_bias


def _arriving(comm: Comm, x: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """All-gather x: yield the rows of each rank as they arrive, this rank's first, and their place in the whole."""
    each = len(x)
    with messages(comm, x.shape, x.dtype, x.device) as under_way:
        for step in range(1, comm.size):
            under_way.send(x, (comm.rank + step) % comm.size)
        for step in range(comm.size):
            rank = (comm.rank - step) % comm.size
            yield slice(rank * each, (rank + 1) * each), under_way.receive(rank) if step else x


def _scattered(comm: Comm, x: Tensor, weight: Tensor) -> Tensor:
    """Reduce-scatter x @ weight: return this rank's rows of the sum over all ranks.

    x: (rows, ..., in). weight: (in, out).
    """
    each = own_rows(comm, len(x)).stop - own_rows(comm, len(x)).start
    with messages(comm, (each, *x.shape[1:-1], weight.shape[1]), x.dtype, x.device) as under_way:
        for step in range(1, comm.size + 1):
            rank = (comm.rank + step) % comm.size  # the last one is this rank
            piece = x[rank * each : (rank + 1) * each] @ weight
            if rank != comm.rank:
                under_way.send(piece, rank)
        for step in range(1, comm.size):
            piece += under_way.receive((comm.rank - step) % comm.size)
    return piece


class OverlappedColumnLinear(ColumnParallelLinear):
    """A column-parallel layer whose messages travel during products. Its arguments are the plain layer's."""

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.comm is None or self.comm.size == 1:
            return super().product(x, weight, bias)
        return (_GatheredLinear if self.sequence else _CopiedLinear).apply(self.comm, x, weight, bias)


class OverlappedRowLinear(RowParallelLinear):
    """A row-parallel layer whose messages travel during products. Its arguments are the plain layer's.

    Without `sequence` the result is needed at once, so it is the plain layer.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.sequence:
            return super().forward(x)
        total = _ScatteredLinear.apply(self.comm, x, self.weight)
        return total if self.bias is None else total + self.bias
