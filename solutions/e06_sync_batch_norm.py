"""Exercise e06: batch norm over the batches of all ranks.

Batch norm subtracts a feature's mean over the batch, and divides by its deviation. In data parallelism each rank has
only its share of the batch. With statistics of its share alone, p ranks train another network than one process does.
Here they share what the statistics need, so that the result is that of one process with all examples: in forward, and,
because every example is in the mean and in the deviation, in backward, too.

The check runs this on 1, 2, 3 and 4 virtual ranks, and then under mpirun. Batches differ in length, and a rank may have
no example at all. Forward makes one collective call, and backward another one: what the ranks exchange is a few sums
for each feature, and does not grow with the batch. Sums are made in float64: of float32 values around 1000, the
difference of two large squares would have no right digit left.

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
    x: (examples, features), float32 or float64, on the CPU; other ranks may have more or fewer examples, or none, and
    all together have one or more. weight, bias: (features,), the same on all ranks.
    Returns y, of the shape and dtype of x: y = (x - mean) / sqrt(variance + eps) * weight + bias, with mean and
    (biased) variance over the examples of all ranks. Afterwards, where L is the sum of all ranks' losses, x.grad is the
    gradient of L, also through mean and variance. weight.grad and bias.grad are this rank's part of L's gradient alone:
    the optimizer adds up the ranks' parts, as it does for every other parameter.
    x, weight and bias keep their values. Each of them needs a gradient on all ranks, or on none.
    """
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    """What sync_batch_norm computes in forward, and its gradient."""

    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        """y. What backward needs is kept in ctx: tensors by ctx.save_for_backward(...), others as ctx.name."""
        # solution: one collective call for all that mean and variance need
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        inverse = (squares / count - mean * mean + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)
        # end of solution

    @staticmethod
    def backward(ctx, dy):
        """The gradients of x, weight and bias where y's is dy, of y's shape; and None for comm and for eps."""
        # solution: one collective call for the two sums that the gradient of x needs
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None
        # end of solution
