"""Exercise e11: the two functions at a layer's border.

In tensor parallelism each rank computes with its own part of a layer. Before the layer all ranks have the same input,
and behind it their partial results are added up. Autograd on one rank knows nothing of the other ranks. So two
functions tell it what happens at the layer's border: Megatron-LM's authors call them f and g, here they are copy_in and
sum_out. All ranks compute one and the same loss, and every gradient is a gradient of this one loss.

The check calls both functions on 1, 2, 3 and 4 virtual ranks, and then under mpirun. It looks at results, gradients and
messages, and it trains a small network whose layers are cut over the ranks.

Check it with `mpcourse check e11_f_and_g`. Stuck? `mpcourse hint e11_f_and_g`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch
from mpi4py import MPI


class CopyIn(torch.autograd.Function):
    """Before a layer that is cut over the ranks: its input, which is the same on all ranks, goes into every part."""

    @staticmethod
    def forward(ctx, comm, x):
        """Return x as it is. Keep in ctx what backward needs."""
        # solution: return x, and keep what backward needs
        ctx.comm = comm
        return x.view_as(x)
        # end of solution

    @staticmethod
    def backward(ctx, gradient):
        """Return one value for each argument of forward: None for comm, and the gradient of x.

        gradient: of the loss by what forward returned, as far as this rank's part of the layer contributes to it.
        """
        # solution: return None and the gradient of x
        total = gradient.clone(memory_format=torch.contiguous_format)
        ctx.comm.Allreduce(MPI.IN_PLACE, total.numpy())
        return None, total
        # end of solution


class SumOut(torch.autograd.Function):
    """Behind a layer that is cut over the ranks: the parts' results are added up."""

    @staticmethod
    def forward(ctx, comm, x):
        """Return the sum of x over all ranks of comm, on each of them."""
        # solution: return the sum over the ranks
        total = x.clone(memory_format=torch.contiguous_format)
        comm.Allreduce(MPI.IN_PLACE, total.numpy())
        return total
        # end of solution

    @staticmethod
    def backward(ctx, gradient):
        """Return one value for each argument of forward: None for comm, and the gradient of x.

        gradient: of the loss, which is the same on all ranks, by the sum that forward returned.
        """
        # solution: return None and the gradient of x
        return None, gradient
        # end of solution


def copy_in(comm, x):
    """Return x, which is the same on all ranks. Backward returns the gradient of the loss by x, the same on all ranks.

    comm: an mpi4py communicator. Each of its ranks calls this function, and runs backward.
    x: a CPU tensor, float32 or float64, of any shape, contiguous or not. Perhaps it needs no gradient. The result has
    its shape and dtype. Neither x nor the gradient that backward is given may be changed.
    With more than one rank, each of the two functions calls comm.Allreduce once, either in forward or in backward, and
    sends nothing else.
    """
    return CopyIn.apply(comm, x)


def sum_out(comm, x):
    """Return the sum of x over all ranks of comm, on each of them.

    comm, x: as for copy_in, but each rank has values of its own in x. All ranks have the same shape and dtype.
    Backward returns the gradient of the loss by this rank's x. For messages, see copy_in.
    """
    return SumOut.apply(comm, x)
