"""The ring: each rank sends to one neighbour only, and no more bytes than it must (Patarasuk & Yuan 2009)."""

from collections.abc import Sequence

from mpcourse.collectives.buffers import Array, Op, accumulate, chunks, empty_like, mpi_buffer
from mpcourse.common.comm import Comm


def ring_allreduce(comm: Comm, x: Array, op: Op | None = None) -> None:
    """Sum x over all p ranks, in place, along a ring. All ranks call it, and get the same bits.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    x: a contiguous numpy array or CPU tensor of any shape; length and dtype are the same on all ranks.
    op: an associative and commutative operation on two flat buffers; None: the sum.

    x, of n bytes, is cut into p chunks. In p - 1 steps of a reduce-scatter, each rank gets the sum of one chunk; in p -
    1 steps of an all-gather, all ranks get all sums. Each rank sends 2 (p - 1) messages, together 2 n (p - 1) / p
    bytes, the least that is possible (Patarasuk & Yuan 2009).
    Raises TypeError where x is neither an array nor a tensor; ValueError where it is not contiguous, not writeable, or
    not in the host's memory.
    """
    chunk = chunks(x, comm.size)
    ring_reduce_scatter(comm, chunk, op)
    ring_allgather(comm, chunk)


def ring_reduce_scatter(comm: Comm, chunk: Sequence[Array], op: Op | None = None) -> None:
    """Sum chunk rank + 1 (modulo p) over all p ranks, on this rank: the ring's first half. All ranks call it.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    chunk: `buffers.chunks(x, p)`, with an x of the same length and dtype on all ranks. The other chunks hold partial
    sums afterwards.
    op: an associative and commutative operation on two flat buffers; None: the sum.

    Each rank sends p - 1 messages, together n (p - 1) / p bytes of the n of x.
    """
    p, rank = comm.size, comm.rank
    received = empty_like(chunk[-1])  # the last chunk is as long as any
    for step in range(p - 1):
        mine, theirs = chunk[(rank - step) % p], chunk[(rank - step - 1) % p]
        arrived = received[: len(theirs)]
        comm.Sendrecv(mpi_buffer(mine), (rank + 1) % p, 0, mpi_buffer(arrived), (rank - 1) % p, 0)
        accumulate(theirs, arrived, op)


def ring_allgather(comm: Comm, chunk: Sequence[Array]) -> None:
    """Copy chunk rank + 1 (modulo p) of each rank to all other ranks: the ring's second half. All ranks call it.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    chunk: `buffers.chunks(x, p)`, with an x of the same length and dtype on all ranks.

    Each rank sends p - 1 messages, together n (p - 1) / p bytes of the n of x.
    """
    p, rank = comm.size, comm.rank
    for step in range(p - 1):
        mine, theirs = chunk[(rank + 1 - step) % p], chunk[(rank - step) % p]
        comm.Sendrecv(mpi_buffer(mine), (rank + 1) % p, 0, mpi_buffer(theirs), (rank - 1) % p, 0)
