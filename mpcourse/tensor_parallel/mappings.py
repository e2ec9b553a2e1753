"""Where a layer's parts begin and end, as autograd sees it: Megatron-LM's f and g, and their heirs with shared rows.

All ranks of the tensor axis compute the same loss, so training minimises one loss and not a sum of losses. Each
function's backward is therefore another function of the same table:

               forward                                backward
copy_in        identity                               all-reduce       Megatron-LM's f
sum_out        all-reduce                             identity         its g
gather_in      all-gather of rows                     reduce-scatter   the g with a bar of sequence parallelism
scatter_out    reduce-scatter: own rows of the sum    all-gather       its g without a bar

`copy_in` and `gather_in` stand before a layer that is split over the ranks: each rank's part returns a part of the
input's gradient, and these are added up. `sum_out` and `scatter_out` stand behind it and add up the parts' results.

Sources: Mohammad Shoeybi and others, Megatron-LM, 2019, https://arxiv.org/abs/1909.08053, section 3 (f and g); Vijay
Korthikanti and others, Reducing Activation Recomputation in Large Transformer Models, 2022,
https://arxiv.org/abs/2205.05198, section 4.2.2.
"""

from typing import Any

import torch

from mpcourse.collectives.tensors import all_gather, all_reduce, reduce_scatter
from mpcourse.common.comm import Comm

Tensor = torch.Tensor


class _CopyIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, x: Tensor) -> Tensor:
        ctx.comm = comm
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, all_reduce(ctx.comm, gradients[0])


class _SumOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, x: Tensor) -> Tensor:
        return all_reduce(comm, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, gradients[0]


class _GatherIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, x: Tensor) -> Tensor:
        ctx.comm = comm
        return all_gather(comm, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, reduce_scatter(ctx.comm, gradients[0])


class _ScatterOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, x: Tensor) -> Tensor:
        ctx.comm = comm
        return reduce_scatter(comm, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, all_gather(ctx.comm, gradients[0])


def copy_in(comm: Comm | None, x: Tensor) -> Tensor:
    """Return x, which is the same on all ranks, for a layer that is split. Backward: an all-reduce.

    comm: the tensor axis's communicator, whose ranks all call this, and run backward; None: one rank.
    x: of any shape and dtype, the same values on all ranks.
    """
    return x if comm is None or comm.size == 1 else _CopyIn.apply(comm, x)


def sum_out(comm: Comm | None, x: Tensor) -> Tensor:
    """Return the sum of x over all ranks, on each of them. Backward sends nothing.

    comm: the tensor axis's communicator, whose ranks all call this; None: one rank.
    x: of one shape and dtype on all ranks.
    """
    return x if comm is None or comm.size == 1 else _SumOut.apply(comm, x)


def gather_in(comm: Comm | None, x: Tensor) -> Tensor:
    """Return the rows of all ranks, (p rows, ...), for a layer that is split. Backward: a reduce-scatter.

    comm: the tensor axis's communicator, whose ranks all call this, and run backward; None: one rank.
    x: this rank's rows, (rows, ...), of one shape and dtype on all ranks.
    """
    return x if comm is None or comm.size == 1 else _GatherIn.apply(comm, x)


def scatter_out(comm: Comm | None, x: Tensor) -> Tensor:
    """Return this rank's rows of the sum of x over all ranks. Backward: an all-gather.

    comm: the tensor axis's communicator, whose ranks all call this, and run backward; None: one rank.
    x: (rows, ...), of one shape and dtype on all ranks.
    Raises ValueError where the rows cannot be shared equally.
    """
    return x if comm is None or comm.size == 1 else _ScatterOut.apply(comm, x)
