"""The ring: each rank talks to its two neighbours only, and sends no more than it must (Patarasuk & Yuan 2009)."""

from mpcourse.collectives.buffers import Array, Op, accumulate, chunks, empty_like, mpi_buffer
from mpcourse.comm import Comm


def ring_allreduce(comm: Comm, x: Array, op: Op | None = None) -> None:
    """Sum x over all ranks, in place. All ranks call it, with x of one length and dtype.

    x: a contiguous numpy array or CPU tensor of any shape, cut into p chunks. op: an associative and commutative
    operation on two flat buffers instead of the sum. In p - 1 steps of a reduce-scatter each rank gets one chunk's
    sum, and in p - 1 steps of an all-gather all get all of them. Each rank sends 2 (p - 1) messages, together 2 n (p -
    1) / p bytes, the least that is possible. A chunk is added up at one place, so all ranks get the same bits. Raises
    TypeError or ValueError for what cannot be reduced in place.
    """
    ring_reduce_scatter(comm, x, op)
    ring_allgather(comm, x)


def ring_reduce_scatter(comm: Comm, x: Array, op: Op | None = None) -> None:
    """Chunk rank + 1 (modulo p) of this rank's x becomes its sum over all ranks; the rest of x holds parts of sums.

    Arguments and errors as those of `ring_allreduce`. p - 1 messages, n (p - 1) / p bytes.
    """
    p, rank = comm.size, comm.rank
    chunk = chunks(x, p)
    received = empty_like(chunk[-1])  # none is longer
    for step in range(p - 1):
        mine, theirs = chunk[(rank - step) % p], chunk[(rank - step - 1) % p]
        arrived = received[: len(theirs)]
        comm.Sendrecv(mpi_buffer(mine), (rank + 1) % p, 0, mpi_buffer(arrived), (rank - 1) % p, 0)
        accumulate(theirs, arrived, op)


def ring_allgather(comm: Comm, x: Array) -> None:
    """Chunk rank + 1 (modulo p) of each rank's x is copied into all others' x. All ranks call it.

    Arguments and errors as those of `ring_allreduce`. p - 1 messages, n (p - 1) / p bytes.
    """
    p, rank = comm.size, comm.rank
    chunk = chunks(x, p)
    for step in range(p - 1):
        mine, theirs = chunk[(rank + 1 - step) % p], chunk[(rank - step) % p]
        comm.Sendrecv(mpi_buffer(mine), (rank + 1) % p, 0, mpi_buffer(theirs), (rank - 1) % p, 0)
