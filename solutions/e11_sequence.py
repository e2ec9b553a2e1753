"""Exercise e11: share what tensor parallelism repeats.

In tensor parallelism each rank has a part of the two layers of an MLP. Every rank repeats what comes before and after
them for all rows of the activations: the layer norm, the second layer's bias, and the residual connection. Sequence
parallelism shares these rows among the p ranks: each rank has 1 / p of them, and computes the layer norm, the bias and
the residual connection for these alone. Before the first layer all ranks gather their rows. After the second layer each
rank needs only its own rows of the sum:

    y = layer_norm(x)                                        # x has this rank's rows
    y = gelu(linear(gather_in(comm, y), first, first_bias))  # this rank's part of the first layer, on all rows
    y = scatter_out(comm, linear(y, second))                 # this rank's part of the second layer
    x = x + y + bias                                         # this rank's rows again

This sends as many bytes as tensor parallelism without it. All ranks compute one loss together: the loss is the sum of
what the ranks compute from their rows. The layer norm and the bias have equal parameters on all ranks, but each rank's
gradient of them comes from its own rows alone.

The check runs your functions on 1, 2, 3 and 4 virtual ranks, where it also counts bytes, and then under mpirun. It
compares them with one process, in the end in blocks like this one over several steps.

Check it with `mpcourse check e11_sequence`. Stuck? `mpcourse hint e11_sequence`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch
from mpi4py import MPI


def all_gather(comm, x):
    """Return the rows of all ranks in order of rank, (p rows, ...), in new memory. The classes below may call this."""
    # solution: the rows of all ranks
    rows = torch.empty((comm.size * x.shape[0], *x.shape[1:]), dtype=x.dtype)
    comm.Allgather(x.detach().contiguous().numpy(), rows.numpy())
    return rows
    # end of solution


def reduce_scatter(comm, x):
    """Return this rank's rows of the sum of x over all ranks, (rows / p, ...). The classes below may call this."""
    # solution: this rank's rows of the sum
    own = torch.empty((x.shape[0] // comm.size, *x.shape[1:]), dtype=x.dtype)
    comm.Reduce_scatter_block(x.detach().contiguous().numpy(), own.numpy(), op=MPI.SUM)
    return own
    # end of solution


class GatherIn(torch.autograd.Function):
    """Gather rows before a layer that is split over the ranks.

    Autograd may call backward after other forwards have been called, so what backward needs is kept in ctx.
    """

    @staticmethod
    def forward(ctx, comm, x):
        """Return the rows of all ranks, in order of rank: (p rows, ...). x: this rank's rows, (rows, ...)."""
        # solution: the rows of all ranks, and what backward needs
        ctx.comm = comm
        return all_gather(comm, x)
        # end of solution

    @staticmethod
    def backward(ctx, gradient):
        """Return one value for each argument of forward: None for comm, and the gradient of x, (rows, ...).

        gradient: (p rows, ...), of what this rank got in forward. Each rank computes something else from these rows, so
        the loss depends on x through the results on all ranks. A rank sends (p - 1) / p of the values of `gradient` to
        others.
        """
        # solution: the gradient of this rank's rows, from those of all ranks
        return None, reduce_scatter(ctx.comm, gradient)
        # end of solution


class ScatterOut(torch.autograd.Function):
    """Add up the ranks' parts of a result after a layer that is split over the ranks, and give each rank its rows."""

    @staticmethod
    def forward(ctx, comm, x):
        """Return this rank's rows of the sum of x over all ranks: (rows / p, ...). x: (rows, ...).

        The number of rows is a multiple of p. Rank r has the r-th of p equal blocks of rows that follow each other. A
        rank sends (p - 1) / p of the values of x to others.
        """
        # solution: this rank's rows of the sum, and what backward needs
        ctx.comm = comm
        return reduce_scatter(comm, x)
        # end of solution

    @staticmethod
    def backward(ctx, gradient):
        """Return one value for each argument of forward: None for comm, and the gradient of x, (rows, ...).

        gradient: (rows / p, ...), of what this rank got in forward. A rank sends it to each other rank at most once.
        """
        # solution: the gradient of all rows
        return None, all_gather(ctx.comm, gradient)
        # end of solution


def gather_in(comm, x):
    """Return the rows of all ranks, in order of rank: (p rows, ...).

    comm: an mpi4py communicator, perhaps of one rank. All its ranks call this function, and later backward.
    x: this rank's rows, (rows, ...), float64, of one shape on all ranks, and perhaps not contiguous. Neither x nor the
    gradient that backward gets is changed. No later call changes a result. Send arrays by methods that do not
    pickle. Each call may send 256 bytes more than forward and backward say.
    """
    return GatherIn.apply(comm, x)


def scatter_out(comm, x):
    """Return this rank's rows of the sum of x over all ranks: (rows / p, ...).

    comm, x: as in gather_in. The number of x's rows is a multiple of p.
    """
    return ScatterOut.apply(comm, x)


def sum_gradients(comm, parameters):
    """Replace the gradient of each parameter by the sum of the gradients that the ranks have for it.

    comm: an mpi4py communicator, perhaps of one rank. All its ranks call this function after backward.
    parameters: a list of parameters that are the same on all ranks, float64, such as those of a layer norm. Gradients
    may be not contiguous. A .grad may be None, but then it is None on all ranks, and stays None.
    Sum all gradients in one flat buffer by one call of comm.Allreduce, however many parameters there are. p.grad may be
    overwritten or replaced. Returns nothing.
    """
    # solution: sum all gradients in one buffer
    gradients = [p.grad for p in parameters if p.grad is not None]
    if gradients:
        flat = torch.cat([g.reshape(-1) for g in gradients])
        comm.Allreduce(MPI.IN_PLACE, flat.numpy(), op=MPI.SUM)
        for g, total in zip(gradients, flat.split([g.numel() for g in gradients])):
            g.copy_(total.view(g.shape))
    # end of solution
