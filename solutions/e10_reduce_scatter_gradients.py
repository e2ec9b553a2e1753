"""Exercise e10: each rank gets its chunk of the mean gradient, and no more.

In data parallelism all ranks get the whole mean gradient. In ZeRO a rank updates only a chunk of the parameters, so it
needs only this chunk of the mean gradient. A reduce-scatter computes it. From a buffer of n values each rank sends
(p - 1) / p n values, half as many as in an all-reduce. Afterwards a rank can free the chunks of the other ranks.

The check runs this on 1, 2, 3 and 4 virtual ranks, where it also counts bytes, and then under mpirun.

Check it with `mpcourse check e10_reduce_scatter_gradients`. Stuck? `mpcourse hint e10_reduce_scatter_gradients`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch
from mpi4py import MPI


def reduce_scatter_gradients(comm, gradients, shapes):
    """Return this rank's chunk of the mean, over all ranks, of their flat buffers of gradients: a tensor (chunk,).

    comm: an mpi4py communicator, perhaps of one rank. Each of its ranks calls this function.
    gradients: a list of this rank's gradients, one for each parameter: tensors of one dtype, float32 or float64,
    contiguous or not. A gradient is None where backward did not reach the parameter, and then counts as zeros. Ranks
    may have None in different places; each has one gradient at least. The gradients keep their values and their memory.
    shapes: a list of torch.Size, the shapes of all parameters, also (); the same on all ranks.
    The flat buffer holds the gradients, each flattened, in the order of the list. It is padded with zeros at its end to
    the next multiple of the number of ranks, and cut into chunks of one length, `chunk`. Rank r gets the r-th chunk.
    The result has the gradients' dtype, and memory of its own for `chunk` elements and no more. On the last ranks it
    may be padding alone, which is zero. Nothing else of a call stays in memory: no buffer is kept for the next one.
    Each rank sends (p - 1) / p of the buffer to others, padding included, p being the number of ranks; 256 bytes more
    are allowed. Messages between two ranks and MPI's collective calls are both allowed, by methods that do not pickle.
    Sums may be in any order: values are compared to 13 digits, those of float32 to 6.
    """
    # solution: lay all gradients out in a padded buffer of zeros, reduce-scatter it, and divide
    length = sum(shape.numel() for shape in shapes)
    chunk = -(-length // comm.size)
    dtype = next(g.dtype for g in gradients if g is not None)
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    begin = 0
    for g, shape in zip(gradients, shapes):
        if g is not None:
            flat[begin : begin + shape.numel()] = g.detach().reshape(-1)
        begin += shape.numel()
    own = torch.empty(chunk, dtype=dtype)
    comm.Reduce_scatter_block(flat.numpy(), own.numpy(), op=MPI.SUM)
    return own / comm.size
    # end of solution
