"""Exercise e06: batch norm over the batches of all ranks.

Batch norm subtracts the mean of each feature over the batch, and divides by its standard deviation. In data parallelism
each rank has only its part of the batch. If each uses the statistics of its part alone, p ranks do not train the same
network as one process. Here the ranks exchange sums, so that they get the result of one process with all examples, in
forward and also in backward, because mean and deviation depend on every example.

The check runs this on 1, 2, 3 and 4 virtual ranks, and then under mpirun. Batches differ in length, and a rank may have
no example. Forward makes one collective call, and backward makes another. In them the ranks exchange a few sums for
each feature, however large the batch is. Compute the sums in float64: with float32 values around 1000, the difference
of two large squares would have no correct digit.

Check it with `mpcourse check e06_sync_batch_norm`. Stuck? `mpcourse hint e06_sync_batch_norm`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    """Normalise each feature over the examples of all ranks; differentiable in x, weight and bias.

    comm: an mpi4py communicator. Every rank calls this function, and then backward, also a rank without examples.
    x: (examples, features), float32 or float64, on the CPU. Some ranks may have more examples than others, or none; all
    together have at least one. weight, bias: (features,), the same on all ranks.
    Returns y, with the shape and dtype of x: y = (x - mean) / sqrt(variance + eps) * weight + bias, with mean and
    (biased) variance over the examples of all ranks. Let L be the sum of all ranks' losses. After backward, x.grad is
    the gradient of L, also through mean and variance. weight.grad and bias.grad are only this rank's part of L's
    gradient: the optimizer adds the ranks' parts, as for every other parameter.
    x, weight and bias keep their values. Each of them requires a gradient on all ranks, or on none.
    """
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    """The forward and backward of sync_batch_norm."""

    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        """Return y. Keep what backward needs in ctx: tensors by ctx.save_for_backward(...), all else as ctx.name."""
        raise NotImplementedError("e06_sync_batch_norm: make one collective call for all sums that mean and variance need")

    @staticmethod
    def backward(ctx, dy):
        """Return the gradients of x, weight and bias, and None for comm and eps. dy is y's gradient, of y's shape."""
        raise NotImplementedError("e06_sync_batch_norm: make one collective call for the two sums that the gradient of x needs")
