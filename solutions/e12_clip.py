"""Exercise e12: clip by the norm of the whole model's gradient when each rank of a grid has only a part.

Clipping multiplies all gradients by one factor, so that the 2-norm of all gradients together is at most a given number.
On a grid no rank has all gradients. Ranks along the pipeline axis have different layers. Ranks along the tensor axis
have different parts of the sharded parameters, and equal copies of all others, such as the parameters of layer norms.
Ranks along the data axis have equal gradients, because the gradients are already averaged.

The check runs this on grids of 1 to 8 virtual ranks, and then under mpirun. It looks at the norm, at the gradients, and
at the ranks that take part in each call.

Check it with `mpcourse check e12_clip`. Stuck? `mpcourse hint e12_clip`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    """Scale all gradients so that the 2-norm of the whole model's gradient is at most `most`, and return the old norm.

    data, pipeline, tensor: this rank's mpi4py communicators, one for each axis of the grid. All ranks of the grid call
    this function.
    parameters: a list of this rank's parameters, float64. A .grad may be None, but then it is None on all ranks that
    have the parameter. It counts as zeros, and stays None. The list may be empty on some pipeline stages.
    sharded: a list of bools, one for each parameter: True if each rank of the tensor axis has a different part of it.
    most: a positive float.
    Like torch.nn.utils.clip_grad_norm_, this function multiplies every gradient, in place, by most / (norm + 1e-6) if
    this factor is less than 1, and otherwise changes no gradient. Returns a float, the same on all ranks.
    """
    # solution: count each element once: sharded on every tensor rank, others on one; sum over two axes; take the root
    squares = 0.0
    for p, split in zip(parameters, sharded):
        if p.grad is not None and (split or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = min(1.0, most / (norm + 1e-6))
    for p in parameters:
        if p.grad is not None and factor < 1:
            p.grad *= factor
    return norm
    # end of solution
