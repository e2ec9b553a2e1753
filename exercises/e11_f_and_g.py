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
        raise NotImplementedError("e11_f_and_g: keep the communicator for backward, and return x")

    @staticmethod
    def backward(ctx, gradient):
        """Return one value for each argument of forward: None for comm, and the gradient of x.

        gradient: of the loss by what forward returned, as far as this rank's part of the layer contributes to it.
        """
        raise NotImplementedError("e11_f_and_g: add up the gradients of all ranks")


class SumOut(torch.autograd.Function):
    """Behind a layer that is cut over the ranks: the parts' results are added up."""

    @staticmethod
    def forward(ctx, comm, x):
        """Return the sum of x over all ranks of comm, on each of them."""
        raise NotImplementedError("e11_f_and_g: add up the results of all ranks")

    @staticmethod
    def backward(ctx, gradient):
        """Return one value for each argument of forward: None for comm, and the gradient of x.

        gradient: of the loss by the sum. All ranks compute the same loss, so it is the same on all ranks.
        """
        raise NotImplementedError("e11_f_and_g: the sum passes its gradient on to each of its summands")


def copy_in(comm, x):
    """Return x, which is the same on all ranks. Backward returns the gradient of x that all ranks' parts add up to.

    comm: an mpi4py communicator. Each of its ranks calls this function, and runs backward.
    x: a CPU tensor, float32 or float64, of any shape, contiguous or not. Perhaps it needs no gradient. The result has
    its shape and dtype. Neither x nor the gradient that backward is given may be changed.
    With more than one rank, backward calls comm.Allreduce once. Forward sends nothing.
    """
    return CopyIn.apply(comm, x)


def sum_out(comm, x):
    """Return the sum of x over all ranks of comm, on each of them.

    comm, x: as for copy_in, but each rank has values of its own in x. All ranks have the same shape and dtype.
    With more than one rank, forward calls comm.Allreduce once. Backward sends nothing.
    """
    return SumOut.apply(comm, x)
