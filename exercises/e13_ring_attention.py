"""Exercise e13: attention around a ring of ranks.

A long sequence does not fit on one GPU, so p ranks share its tokens. Each rank computes the queries, keys and values of
its own tokens. But a query needs the keys and values of all earlier tokens, and most of them are on other ranks. If
each rank gathered them all, every rank would hold the whole sequence again.

In ring attention a rank holds the keys and values of one other rank at a time, beside its own. They travel around a
ring: each rank passes on to the next rank what it has got from the rank before. On the way, each rank's queries meet
the keys of all ranks. In backward the gradients of keys and values have to come back to the rank that has these keys
and values.

The attention itself is given. `block`, `merge` and `block_gradients` are what the exercise e13_online_softmax asks for.

The check runs your class on 1, 2, 3 and 4 virtual ranks, where it also counts bytes, and then under mpirun. It compares
results and gradients with those of one process.

Check it with `mpcourse check e13_ring_attention`. Stuck? `mpcourse hint e13_ring_attention`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import math

import torch
from mpi4py import MPI  # noqa: F401  for MPI.Request and the like, if you want them


def block(q, k, v, visible):
    """Return attention of some queries to a block of keys, (queries, d), and its lse, (queries,).

    q: (queries, d). k, v: (keys, d).
    visible: bool, (queries, keys). True where a query sees a key.
    lse: the logarithm of the sum of exp(scores) over the keys that a query sees. A query that sees none of them gets
    zeros, and minus infinity as its lse.
    """
    scores = (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~visible, -math.inf)
    lse = scores.logsumexp(1)
    return (scores - lse.masked_fill(lse == -math.inf, 0)[:, None]).exp() @ v, lse


def merge(out, lse, other, other_lse):
    """Return attention to the keys of two blocks together, and its lse, from what `block` returned for each of them."""
    share = torch.sigmoid(other_lse - lse).nan_to_num(0)  # NaN: the query sees no key in either block
    return out + share[:, None] * (other - out), torch.logaddexp(lse, other_lse)


def block_gradients(gradient, q, k, v, visible, out, lse):
    """Return a block's part of the gradient of q, and these queries' parts of the gradients of its keys and values.

    gradient: (queries, d), of attention to the keys of all blocks. out, lse: this attention, and its lse.
    q, k, v, visible: those of the block.
    """
    lse = lse.masked_fill(lse == -math.inf, 0)[:, None]
    scale = math.sqrt(q.shape[1])
    weights = (q @ k.T / scale - lse).exp().masked_fill(~visible, 0)
    of_scores = weights * (gradient @ v.T - (gradient * out).sum(1, keepdim=True)) / scale
    return of_scores @ k, of_scores.T @ q, weights.T @ gradient


def pass_on(comm, x):
    """Send x to rank r + 1, and return what rank r - 1 has sent: a new tensor like x. The class below may call this.

    r is this rank. The ring is closed: rank 0 follows rank p - 1. On one rank, x itself may be returned.
    """
    raise NotImplementedError("e13_ring_attention: send to the next rank, and receive from the rank before")


class RingAttention(torch.autograd.Function):
    """Causal attention to keys and values that travel around the ring.

    Autograd may call backward after other forwards have been called, so what backward needs is kept in ctx.
    """

    @staticmethod
    def forward(ctx, comm, q, k, v):
        """Return attention of this rank's queries to the keys of the whole sequence, (n, d).

        A rank sends at most p - 1 times as many bytes as k and v have. ctx keeps nothing that came from other ranks,
        but only what this rank was given, and what it computed for its own queries.
        """
        raise NotImplementedError("e13_ring_attention: let this rank's queries meet the keys and values of all ranks")

    @staticmethod
    def backward(ctx, gradient):
        """Return one value for each argument of forward: None for comm, and the gradients of q, k and v, (n, d).

        gradient: (n, d), of what this rank got in forward. A rank sends at most p times as many bytes as k, v and the
        gradients of both have.
        """
        raise NotImplementedError("e13_ring_attention: let keys and values travel again, and their gradients with them")


def ring_attention(comm, q, k, v):
    """Return causal attention of this rank's queries to the keys of the whole sequence, (n, d).

    comm: an mpi4py communicator of p ranks, perhaps of one. All its ranks call this function, and later backward.
    q, k, v: queries, keys and values of this rank's n tokens, (n, d), float64, and perhaps not contiguous. They have
    one shape on all ranks, and all need gradients. The sequence has p n tokens: first those of rank 0, then those of
    rank 1, and so on. A query sees the keys of its own token and of all earlier ones.

    The ranks compute one loss together: the sum of what each of them computes from its result. Backward returns the
    gradients of this loss. Each rank runs backward, even if its own gradient is zero.

    Neither q, k and v nor the gradient that backward gets are changed. No later call changes a result.
    A rank sends messages to the next rank only: rank r to rank r + 1, and rank p - 1 to rank 0. Do not call collective
    operations. Send arrays by methods that do not pickle. Forward and backward may each send 256 bytes more than they
    say.
    """
    return RingAttention.apply(comm, q, k, v)
