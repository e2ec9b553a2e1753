"""Exercise e14: tokens travel to the ranks that have their experts, and back.

In a mixture of experts, a model has many feed-forward networks, its experts, and a router chooses one of them for each
token. With expert parallelism, p ranks share the experts. Each rank also has tokens of its own, and the expert of a
token may be on any rank. So each rank sends its tokens to the ranks of their experts. Its own experts compute the
tokens that have come, and the rank sends the results back.

The router decides how many tokens go where. Ranks send different numbers of rows to each other, and any of these
numbers may be 0.

`exchange` sends rows to all ranks, and receives rows from all of them. `mixture` is the whole way of the tokens, with
the experts in its middle.

The check runs both functions on 1, 2, 3 and 4 virtual ranks, where it also counts bytes, and then under mpirun. It
compares results and gradients with those of one process.

Check it with `mpcourse check e14_dispatch`. Stuck? `mpcourse hint e14_dispatch`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch
from mpi4py import MPI  # noqa: F401  for MPI.DOUBLE and the like, if you want them


class Exchange(torch.autograd.Function):
    """Send rows to all ranks, and receive rows from all of them.

    Autograd may call backward after other forwards have been called, so what backward needs is kept in ctx.
    """

    @staticmethod
    def forward(ctx, comm, rows, sent, received):
        """Return the rows that come to this rank, (sum(received), width). `exchange` says what the arguments are."""
        # solution: send the rows, return those that come, and keep what backward needs
        ctx.comm, ctx.sent, ctx.received = comm, list(sent), list(received)
        width = rows.shape[1]
        came = torch.empty((sum(received), width), dtype=rows.dtype)
        leaving = [rows.detach().contiguous().numpy(), [number * width for number in sent]]
        comm.Alltoallv(leaving, [came.numpy(), [number * width for number in received]])
        return came
        # end of solution

    @staticmethod
    def backward(ctx, gradient):
        """Return one value for each argument of forward: the gradient of rows, (sum(sent), width), and None otherwise.

        gradient: (sum(received), width), of the rows that came to this rank in forward.
        """
        # solution: return the gradient of this rank's rows
        return None, exchange(ctx.comm, gradient, ctx.received, ctx.sent), None, None
        # end of solution


def exchange(comm, rows, sent, received):
    """Return the rows that come to this rank, (sum(received), width): first those from rank 0, then from rank 1, ...

    comm: an mpi4py communicator of p ranks, perhaps of one. All its ranks call this function, and later backward.
    rows: (sum(sent), width), perhaps not contiguous: first the rows that go to rank 0, then those to rank 1, and so on.
    Rows keep their order on the way. A rank may also have rows for itself. rows need gradients on all ranks.
    sent: a list of p ints, how many rows go to each rank.
    received: a list of p ints, how many rows come from each rank. This rank's received[r] is rank r's sent[this rank].
    Any number may be 0, also all numbers of a rank. They may differ from call to call.

    The ranks compute one loss together: the sum of what each of them computes from its result. Backward returns the
    gradient of this loss.

    All tensors in this file are float64, except `chosen`. No argument is changed, nor is the gradient that backward
    gets. No later call changes a result or a gradient. Send arrays by methods that do not pickle.
    Forward sends a row once if it goes to another rank, and backward sends its gradient once. Rows that stay on their
    rank are not counted. Forward and backward may each send 256 bytes more.
    """
    return Exchange.apply(comm, rows, sent, received)


def mixture(comm, x, chosen, weights, expert, own):
    """Return each token's result times its weight, in the order of the tokens: (tokens, width).

    comm: an mpi4py communicator of p ranks, perhaps of one. All its ranks call this function, and later backward.
    x: this rank's tokens, (tokens, width). The number of tokens may differ between ranks, and may be 0.
    chosen: int64 (tokens,), the number of each token's expert among all p * own experts.
    weights: (tokens,). The result of a token's expert is multiplied by the token's weight. x and weights are perhaps
    not contiguous.
    expert: a function. expert(i, rows) returns the results of expert i for `rows`: (n, width) from (n, width). i is an
    int, the number of one of this rank's experts among all p * own experts. Autograd knows the function, and n may be
    0. Call it exactly once for each of this rank's experts, also if no token has come to this expert.
    own: an int, how many experts each rank has. Rank r has the experts from r * own to (r + 1) * own - 1.

    The gradients of x, of the weights and of the experts' parameters are those of one loss, as in `exchange`. x and
    weights need gradients on all ranks, and all ranks run backward, even those without tokens.

    You may call `exchange`, whose rules apply here, too. But integers, such as counts, may be pickled. A token travels
    to the rank of its expert once, and its result travels back once. So do their gradients in backward. Forward and
    backward may each send 4096 bytes more.
    """
    # solution: let each token's expert compute it, on whichever rank that is
    order = chosen.argsort(stable=True)  # by expert, and so by rank
    counts = torch.bincount(chosen, minlength=comm.size * own).view(comm.size, own)
    arriving = torch.empty_like(counts)  # how many rows come from each rank for each of this rank's experts
    comm.Alltoall(counts.numpy(), arriving.numpy())
    sent, received = counts.sum(1).tolist(), arriving.sum(1).tolist()
    rows = exchange(comm, x[order], sent, received)
    of_expert = torch.arange(own).repeat(comm.size).repeat_interleave(arriving.flatten())
    by_expert = of_expert.argsort(stable=True)  # rows come rank by rank
    parts = rows[by_expert].split(arriving.sum(0).tolist())
    done = torch.cat([expert(comm.rank * own + i, part) for i, part in enumerate(parts)])
    back = exchange(comm, done[by_expert.argsort()], received, sent)
    return back[order.argsort()] * weights[:, None]
    # end of solution
