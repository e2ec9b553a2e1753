"""Exercise e10: a layer's weight is there while the layer computes, and only then.

Stage 3 of ZeRO also divides the parameters. Between steps each rank has a chunk of every weight. Before a layer's
forward or backward pass all ranks gather its whole weight from their chunks. Afterwards they free it. So a rank never
holds more than one whole weight at a time. The price is that each weight is sent once more.

The check runs networks of such layers over several steps, on 1, 2, 3 and 4 virtual ranks and then under mpirun. It
compares them with one process, counts bytes, and looks for whole weights that outlive the call.

Check it with `mpcourse check e10_gather_layer`. Stuck? `mpcourse hint e10_gather_layer`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch
from mpi4py import MPI


def gathered(shard, comm, shape):
    """The whole weight, of this shape, from all ranks' shards; both functions below may call this, or do without it."""
    raise NotImplementedError("e10_gather_layer: gather all chunks, and leave out the padding")


class GatheredLinear(torch.autograd.Function):
    """A linear layer without bias, y = x weight^T. Each rank has one chunk of its weight.

    GatheredLinear.apply(x, shard, comm, shape) calls forward, and autograd calls backward. All ranks call it for the
    same layers in the same order; there may be forwards without a backward, as in evaluation. Ranks have different
    examples, and perhaps different numbers of them. x may require a gradient on some ranks and not on others; shard
    requires one on all of them.
    comm: an mpi4py communicator; it may have one rank only. Weights and gradients are sent by methods that do not
    pickle, in x's dtype. Of a weight of n values, padding included, each rank sends (p - 1) / p n to others in forward,
    p being the number of ranks, and twice that in backward, give or take 256 bytes.
    Nothing is prefetched: a call gathers its own layer's weight and no other's. Once it has returned, only what it
    returned and what ctx keeps is in memory.
    Sums may be in any order: values are compared to 12 digits, those of float32 to 5.
    """

    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        """x times the transposed weight: (examples, out). Once this returns, no whole weight is in memory.

        x: (examples, in), this rank's own, contiguous or not. shard: (chunk,), of x's dtype, float32 or float64.
        shape: (out, in), that of the weight. Its elements, flattened and padded at the end to a multiple of the number
        of ranks, are cut into chunks of one length; the r-th is the shard of rank r. What padding holds is not defined.
        What backward needs is kept in ctx: x, the shard, and what is small.
        """
        raise NotImplementedError("e10_gather_layer: gather the weight, compute, and keep x and the shard")

    @staticmethod
    def backward(ctx, grad):
        """One value for each argument of forward: the gradients of x and of shard, and None for what is no tensor.

        grad: (examples, out), of y, contiguous or not; it is not changed. The gradient of x is this rank's own: of its
        own loss. That of shard, (chunk,), is this rank's chunk of the mean, over all ranks, of the gradients of the
        weight. It is zero where the shard is padding, and has memory of its own, as large as a chunk. Autograd adds it
        to shard.grad, which backward leaves alone.
        """
        raise NotImplementedError("e10_gather_layer: gather the weight again, compute both gradients, and reduce-scatter that of the weight")
