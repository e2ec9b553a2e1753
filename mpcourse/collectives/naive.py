"""Gather and broadcast, one message after the other: what everybody writes first."""

from mpcourse.collectives.buffers import Array, Op, accumulate, empty_like, flatten, mpi_buffer
from mpcourse.comm import Comm


def naive_allreduce(comm: Comm, x: Array, op: Op | None = None) -> None:
    """Sum x over all ranks, in place, on rank 0, which sends the sum to everybody. All ranks call it.

    x: a contiguous numpy array or CPU tensor of any shape, of one length and dtype on all ranks. op: an operation on
    two flat buffers instead of the sum. Rank 0 receives and sends (p - 1) n bytes in p - 1 messages each, every other
    rank n bytes in one: the time grows with p, and all links but rank 0's are idle. Added up in the order of ranks; all
    ranks get the same bits. Raises TypeError or ValueError for what cannot be reduced in place.
    """
    own = flatten(x)
    if comm.rank:
        comm.Send(mpi_buffer(own), 0)
        comm.Recv(mpi_buffer(own), 0)
        return
    received = empty_like(own)
    for rank in range(1, comm.size):
        comm.Recv(mpi_buffer(received), rank)
        accumulate(own, received, op)
    for rank in range(1, comm.size):
        comm.Send(mpi_buffer(own), rank)
