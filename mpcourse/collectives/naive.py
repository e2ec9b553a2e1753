"""Gather and broadcast, one message after the other: the version that comes to mind first."""

from mpcourse.collectives.buffers import Array, Op, accumulate, empty_like, flatten, mpi_buffer
from mpcourse.common.comm import Comm


def naive_allreduce(comm: Comm, x: Array, op: Op | None = None) -> None:
    """Sum x over all p ranks, in place, on rank 0, which sends the sum to all others. All ranks call it.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    x: a contiguous numpy array or CPU tensor of any shape; length and dtype are the same on all ranks.
    op: an operation on two flat buffers, applied in the order of ranks; None: the sum.

    For x of n bytes, rank 0 receives and sends (p - 1) n bytes, in p - 1 messages each; every other rank sends and
    receives n bytes, in one message each. The time grows with p, and all links except rank 0's are idle. All ranks get
    the same bits.
    Raises TypeError where x is neither an array nor a tensor; ValueError where it is not contiguous, not writeable, or
    not in the host's memory.
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
