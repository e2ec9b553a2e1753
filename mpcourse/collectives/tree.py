"""Binomial trees: broadcast and reduce in ceil(lg p) rounds.

In round k of a broadcast, the ranks below 2^k have the data, and each sends it to the rank 2^k further. A reduction is
the same tree in reverse. Ranks count from the root.
"""

import numpy as np

from mpcourse.collectives.buffers import Array, Op, accumulate, empty_like, flatten, mpi_buffer
from mpcourse.common.comm import Comm


def broadcast(comm: Comm, x: Array, root: int = 0) -> None:
    """Copy x of rank `root` to all ranks, along a binomial tree. All ranks call it.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    x: a contiguous numpy array or CPU tensor of any shape; length and dtype are the same on all ranks.
    root: a rank, the same on all ranks.

    It takes p - 1 messages of n bytes, the length of x; ceil(lg p) of them follow one another.
    Raises TypeError where x is neither an array nor a tensor; ValueError where it is not contiguous, not writeable, or
    not in the host's memory, or where `root` is no rank.
    """
    own, p, place, distance = flatten(x), comm.size, _place(comm, root), 1
    while distance < p:
        if place < distance and place + distance < p:
            comm.Send(mpi_buffer(own), (comm.rank + distance) % p)
        elif distance <= place < 2 * distance:
            comm.Recv(mpi_buffer(own), (comm.rank - distance) % p)
        distance *= 2


def reduce(comm: Comm, x: Array, op: Op | None = None, root: int = 0) -> None:
    """Sum all ranks' x into x of rank `root`, along a binomial tree. All ranks call it.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    x: a contiguous numpy array or CPU tensor of any shape; length and dtype are the same on all ranks. On the other
    ranks it holds a partial sum afterwards.
    op: an associative and commutative operation on two flat buffers; None: the sum. Neighbours are added up first, not
    rank after rank.
    root: a rank, the same on all ranks.

    It takes p - 1 messages of n bytes, the length of x; ceil(lg p) of them follow one another.
    Raises TypeError where x is neither an array nor a tensor; ValueError where it is not contiguous, not writeable, or
    not in the host's memory, or where `root` is no rank.
    """
    own, p, place, distance = flatten(x), comm.size, _place(comm, root), 1
    received = empty_like(own)
    while distance < p:
        if place % (2 * distance):
            comm.Send(mpi_buffer(own), (comm.rank - distance) % p)
            return
        if place + distance < p:
            comm.Recv(mpi_buffer(received), (comm.rank + distance) % p)
            accumulate(own, received, op)
        distance *= 2


def tree_allreduce(comm: Comm, x: Array, op: Op | None = None) -> None:
    """Sum x over all p ranks, in place: reduce to rank 0, then broadcast. All ranks call it, and get the same bits.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    x: a contiguous numpy array or CPU tensor of any shape; length and dtype are the same on all ranks.
    op: an associative and commutative operation on two flat buffers; None: the sum.

    It takes 2 ceil(lg p) rounds of n bytes, the length of x. Every rank except 0 sends n bytes up the tree, in one
    message, and n bytes down to each of its children.
    Raises TypeError where x is neither an array nor a tensor; ValueError where it is not contiguous, not writeable, or
    not in the host's memory.
    """
    reduce(comm, x, op)
    broadcast(comm, x)


def barrier(comm: Comm) -> None:
    """Wait until all ranks have called it (dissemination: Hensgen et al. 1988).

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.

    In round k, each rank sends an empty message to the rank 2^k after it, and receives one from the rank 2^k before it:
    ceil(lg p) messages per rank.
    """
    token, distance = np.empty(0, np.uint8), 1
    while distance < comm.size:
        after, before = (comm.rank + distance) % comm.size, (comm.rank - distance) % comm.size
        comm.Sendrecv(token, after, 0, token.copy(), before, 0)
        distance *= 2


def _place(comm: Comm, root: int) -> int:
    """Return how far this rank is from the root, counting upwards."""
    if not 0 <= root < comm.size:
        raise ValueError(f"root is one of the ranks 0 to {comm.size - 1}, not {root}")
    return (comm.rank - root) % comm.size
