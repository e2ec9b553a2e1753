"""A linear layer cut by its outputs or by its inputs (Megatron-LM, Shoeybi et al. 2019, section 3).

The first is called column parallel, after the paper's notation x A, the second row parallel; torch stores weights
transposed, as (outputs, inputs). A column-parallel layer gives the row-parallel layer behind it exactly the part that
it needs, and between the two nothing is sent.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.collectives.tensors import all_gather, reduce_scatter
from mpcourse.common.comm import Comm
from mpcourse.tensor_parallel.mappings import copy_in, scatter_out, sum_out
from mpcourse.tensor_parallel.parts import ParallelLayer, own_part

Tensor = torch.Tensor


class _GatheredLinear(torch.autograd.Function):
    """A linear layer on the rows of all ranks. For the backward pass, each rank keeps only its own rows.

    `F.linear(gather_in(comm, x), weight, bias)` is the same, but autograd would keep the gathered rows. Here they are
    gathered once more instead (Korthikanti et al. 2022, section 4.2.2).
    """

    @staticmethod
    def forward(ctx: Any, comm: Comm, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.comm, ctx.has_bias = comm, bias is not None
        ctx.save_for_backward(x, weight)
        return F.linear(all_gather(comm, x), weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        of_out = gradients[0]
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[2]:
            rows = all_gather(ctx.comm, x)
            of_weight = of_out.flatten(0, -2).T @ rows.flatten(0, -2)
        if ctx.needs_input_grad[1]:
            of_x = reduce_scatter(ctx.comm, of_out @ weight)
        if ctx.has_bias and ctx.needs_input_grad[3]:
            of_bias = of_out.flatten(0, -2).sum(0)
        return None, of_x, of_weight, of_bias


class ColumnParallelLinear(ParallelLayer):
    """A linear layer of whose outputs each rank has a part: (..., in), the same on all ranks, to (..., part of out).

    comm: the tensor axis's communicator, all of whose ranks make one together; None: one rank.
    linear: weight (out, in) and bias, the same on all ranks; this rank's part is copied.
    sequence: takes this rank's rows, (rows / p, ..., in), and returns those of all ranks, (rows, ..., part of out).
    own: int64, this rank's outputs; None: consecutive ones, whose numbers differ by one at most between ranks.

    In backward the input's gradient is summed over the ranks: an all-reduce. With `sequence`, forward is an all-gather,
    backward another one and a reduce-scatter.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, comm: Comm | None, linear: nn.Linear, sequence: bool = False, own: Tensor | None = None) -> None:
        super().__init__(comm)
        self.sequence = sequence and comm is not None and comm.size > 1
        own = own_part(comm, linear.out_features) if own is None else own
        self.split_parameter("weight", linear.weight, 0, own)
        if linear.bias is None:
            self.bias = None
        else:
            self.split_parameter("bias", linear.bias, 0, own)

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, self.weight, self.bias)

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Compute the layer's result with a weight and a bias that were made of its own.

        x, weight, bias: as in `forward`.
        """
        if self.sequence:
            return _GatheredLinear.apply(self.comm, x, weight, bias)
        return F.linear(copy_in(self.comm, x), weight, bias)


class RowParallelLinear(ParallelLayer):
    """A linear layer of whose inputs each rank has a part: (..., part of in) to (..., out), the same on all ranks.

    comm: the tensor axis's communicator, all of whose ranks make one together; None: one rank.
    linear: weight (out, in) and bias, the same on all ranks; this rank's part of the weight is copied.
    sequence: returns this rank's rows, (rows / p, ..., out).
    own: int64, this rank's inputs; None: consecutive ones, whose numbers differ by one at most between ranks.

    Forward is an all-reduce, backward sends nothing. With `sequence`, forward is a reduce-scatter, backward an
    all-gather. The bias is added once, to the sum.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, comm: Comm | None, linear: nn.Linear, sequence: bool = False, own: Tensor | None = None) -> None:
        super().__init__(comm)
        self.sequence = sequence and comm is not None and comm.size > 1
        self.split_parameter("weight", linear.weight, 1, own_part(comm, linear.in_features) if own is None else own)
        self.whole_parameter("bias", linear.bias)
        self.partial = ["bias"] if self.sequence and linear.bias is not None else []

    def forward(self, x: Tensor) -> Tensor:
        partial = F.linear(x, self.weight)
        total = scatter_out(self.comm, partial) if self.sequence else sum_out(self.comm, partial)
        return total if self.bias is None else total + self.bias
