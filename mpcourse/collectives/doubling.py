"""Recursive doubling: two ranks exchange all they have, in each round twice as far apart (Thakur et al. 2005)."""

from mpcourse.collectives.buffers import Array, Op, accumulate, empty_like, flatten, mpi_buffer
from mpcourse.collectives.folding import fold, rank_at, ranks_too_many, unfold
from mpcourse.common.comm import Comm


def recursive_doubling_allreduce(comm: Comm, x: Array, op: Op | None = None) -> None:
    """Sum x over all p ranks, in place, by recursive doubling: the fastest for short x. All ranks call it.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    x: a contiguous numpy array or CPU tensor of any shape; length and dtype are the same on all ranks.
    op: an associative and commutative operation on two flat buffers; None: the sum.

    In round k, a rank and the rank whose number differs in bit k exchange all they have, n bytes, and both add. There
    are lg p rounds. Where p is no power of two, ranks are folded, which takes 2 rounds more (Thakur, Rabenseifner &
    Gropp 2005). All ranks get the same bits if op(a, b) and op(b, a) have the same bits, as sums have.
    Raises TypeError where x is neither an array nor a tensor; ValueError where it is not contiguous, not writeable, or
    not in the host's memory.
    """
    own = flatten(x)
    received = empty_like(own)
    sent, arrived = mpi_buffer(own), mpi_buffer(received)
    extra = ranks_too_many(comm.size)
    place, distance = fold(comm, own, op) if extra else comm.rank, 1
    while place is not None and distance < comm.size - extra:
        partner = rank_at(comm, place ^ distance)
        comm.Sendrecv(sent, partner, 0, arrived, partner, 0)
        accumulate(own, received, op)
        distance *= 2
    if extra:
        unfold(comm, own)
