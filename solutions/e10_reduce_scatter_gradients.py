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
    """Average the flat gradient buffers of all ranks, and return this rank's chunk of the mean: a tensor (chunk,).

    comm: an mpi4py communicator, perhaps of one rank. Each of its ranks calls this function.
    gradients: a list of this rank's gradients, one for each parameter: tensors of one dtype, float32 or float64,
    contiguous or not. A gradient is None where backward did not reach the parameter, and then counts as zeros. Ranks
    may have None in different places; each has at least one gradient. The gradients keep their values and their memory.
    shapes: the shapes of all parameters, a list of torch.Size, the same on all ranks. A shape may be ().
    The flat buffer holds the gradients, each flattened, in the order of the list. It is padded with zeros at its end to
    the next multiple of the number of ranks, and cut into chunks of one length, `chunk`. Rank r gets the r-th chunk.
    The result has the gradients' dtype, and memory of its own for `chunk` elements and no more. On the last ranks the
    result may be all padding, which is zero. After a call, nothing but its result stays in memory: do not keep a buffer
    for the next call.
    With p ranks, each rank sends (p - 1) / p of the buffer to others, padding included. 256 bytes more are allowed. You
    may use messages between two ranks or MPI's collective calls, but only methods that do not pickle.
    You may sum in any order: the check compares float64 values to 13 digits, and float32 values to 6.
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
