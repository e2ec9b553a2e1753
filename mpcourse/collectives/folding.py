"""Algorithms for 2^k ranks on any number of ranks: r extra ranks fold their elements into their neighbours'.

Of the first 2 r ranks, r = p - 2^k, each even one gives its elements to the odd one after it, and gets the result from
it in the end (Thakur, Rabenseifner & Gropp 2005). The remaining 2^k ranks work under numbers of their own, called
places.
"""

from functools import cache

from mpcourse.collectives.buffers import Array, Op, accumulate, empty_like, mpi_buffer
from mpcourse.common.comm import Comm


def power_below(p: int) -> int:
    """Return the largest power of two that is not above p.

    p: 1 or more.
    """
    return 1 << (p.bit_length() - 1)


@cache  # called several times in each sum
def ranks_too_many(p: int) -> int:
    """Return by how much p is above the largest power of two.

    p: 1 or more.
    """
    return p - power_below(p)


def fold(comm: Comm, x: Array, op: Op | None = None) -> int | None:
    """Add the elements of the extra ranks to their neighbours', before an algorithm for 2^k ranks.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    x: a flat buffer, a numpy array or CPU tensor; of the same length and dtype on all ranks.
    op: an operation on two flat buffers; None: the sum.
    Returns this rank's place among the 2^k ranks that continue, or None if another rank now has its elements.
    """
    extra = ranks_too_many(comm.size)
    if comm.rank >= 2 * extra:
        return comm.rank - extra
    if comm.rank % 2 == 0:
        comm.Send(mpi_buffer(x), comm.rank + 1)
        return None
    received = empty_like(x)
    comm.Recv(mpi_buffer(received), comm.rank - 1)
    accumulate(x, received, op)
    return comm.rank // 2


def unfold(comm: Comm, x: Array) -> None:
    """Send the result to the ranks whose elements were folded, after the algorithm.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    x: the flat buffer that `fold` was given, with the result on the ranks that have a place.
    """
    extra = ranks_too_many(comm.size)
    if comm.rank < 2 * extra:
        if comm.rank % 2:
            comm.Send(mpi_buffer(x), comm.rank - 1)
        else:
            comm.Recv(mpi_buffer(x), comm.rank + 1)


def rank_at(comm: Comm, place: int) -> int:
    """Return the rank that has a place after `fold`.

    comm: the communicator that was folded; any rank may call this.
    place: 0 to 2^k - 1.
    """
    extra = ranks_too_many(comm.size)
    return 2 * place + 1 if place < extra else place + extra
