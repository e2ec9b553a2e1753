"""Exercise e10: a layer's weight is there while the layer computes, and only then.

Stage 3 of ZeRO also divides the parameters. Between steps each rank has a chunk of every weight. Before a layer's
forward or backward pass all ranks gather its whole weight from their chunks. Afterwards they free it. So a rank never
holds more than one whole weight at a time. The price is that the ranks gather each weight twice in a step, while in
stages 1 and 2 they gather it only once.

The check runs networks of such layers over several steps, on 1, 2, 3 and 4 virtual ranks and then under mpirun. It
compares them with one process, counts bytes, and looks for whole weights that are still in memory after a call.

Check it with `mpcourse check e10_gather_layer`. Stuck? `mpcourse hint e10_gather_layer`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch
from mpi4py import MPI


def gathered(shard, comm, shape):
    """Return the whole weight, with this shape, from all ranks' shards. Both methods below may call this."""
    # solution: gather all chunks, and leave out the padding
    flat = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), flat.numpy())
    return flat[: shape[0] * shape[1]].view(shape)
    # end of solution


class GatheredLinear(torch.autograd.Function):
    """A linear layer without bias, y = x weight^T. Each rank has one chunk of its weight.

    GatheredLinear.apply(x, shard, comm, shape) calls forward, and autograd calls backward. All ranks call both for the
    same layers in the same order. Some forwards have no backward, as in evaluation. Ranks have different examples, and
    perhaps different numbers of them. x may require a gradient on some ranks and not on others. shard requires a
    gradient on all ranks.
    comm: an mpi4py communicator, perhaps of one rank. Send weights and gradients in x's dtype, by methods that do not
    pickle. If p ranks share a weight of n values, padding included, each rank sends (p - 1) / p n values to others in
    forward, and twice as many in backward. 256 bytes more or less are allowed.
    Do not prefetch: a call gathers only its own layer's weight. After a call, only its result and what ctx keeps are in
    memory.
    You may sum in any order: the check compares float64 values to 12 digits, and float32 values to 5.
    """

    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        """Return x times the transposed weight: (examples, out). Leave no whole weight in memory.

        x: (examples, in), this rank's own, contiguous or not. shard: (chunk,), of x's dtype, float32 or float64.
        shape: the weight's, (out, in). The weight is flattened, padded at its end to a multiple of the number of ranks,
        and cut into chunks of equal length. Rank r's shard is chunk r. The values of the padding are not defined.
        Keep in ctx only what backward needs: x, the shard, and small objects.
        """
        # solution: gather the weight, compute, and keep x and the shard
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return x @ gathered(shard, comm, shape).T
        # end of solution

    @staticmethod
    def backward(ctx, grad):
        """Return one value for each argument of forward: the gradients of x and shard, and None for any other argument.

        grad: the gradient of y, (examples, out), contiguous or not. It is not changed.
        The gradient of x is that of this rank's own loss. The gradient of shard, (chunk,), is this rank's chunk of the
        mean of all ranks' gradients of the weight. It is zero where the shard is padding, and has memory of its own, as
        large as a chunk. Autograd adds it to shard.grad, so backward leaves shard.grad alone.
        """
        # solution: gather the weight again, compute both gradients, and reduce-scatter the gradient of the weight
        x, shard = ctx.saved_tensors
        of_x = grad @ gathered(shard, ctx.comm, ctx.shape)
        flat = torch.zeros(len(shard) * ctx.comm.size, dtype=shard.dtype)
        flat[: ctx.shape[0] * ctx.shape[1]] = (grad.T @ x).reshape(-1)
        own = torch.empty_like(shard)
        ctx.comm.Reduce_scatter_block(flat.numpy(), own.numpy(), op=MPI.SUM)
        return of_x, own / ctx.comm.size, None, None
        # end of solution
