"""Two levels: inside a node, where links are fast, and between nodes, where they are slow and shared."""

from mpcourse.collectives.buffers import Array, Op
from mpcourse.collectives.rabenseifner import rabenseifner_allreduce
from mpcourse.collectives.tree import broadcast, reduce
from mpcourse.common.comm import Comm
from mpcourse.virtual import mpi_of


def hierarchical_allreduce(
    comm: Comm, x: Array, op: Op | None = None, *, levels: tuple[Comm, Comm] | None = None
) -> None:
    """Sum x over all ranks, in place: to each node's first rank, among these, and back. All ranks call it.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    x: a contiguous numpy array or CPU tensor of any shape; length and dtype are the same on all ranks.
    op: an associative and commutative operation on two flat buffers; None: the sum.
    levels: what `two_levels(comm)` returned; None: it is called here. Pass it where sums are repeated, because making
    communicators is collective and takes time.

    Only one rank of a node sends to other nodes, so that a slow link carries only that rank's messages. All ranks get
    the same bits.
    Raises TypeError where x is neither an array nor a tensor; ValueError where it is not contiguous, not writeable, or
    not in the host's memory.
    """
    inside, leaders = levels or two_levels(comm)
    reduce(inside, x, op)
    if inside.rank == 0:
        rabenseifner_allreduce(leaders, x, op)
    broadcast(inside, x)


def two_levels(comm: Comm) -> tuple[Comm, Comm]:
    """Return a communicator of this rank's node, and one of all ranks with this rank's number in their nodes.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.

    A node is a group of ranks that share memory.
    """
    inside = comm.Split_type(mpi_of(comm).COMM_TYPE_SHARED, comm.rank)
    return inside, comm.Split(inside.rank, comm.rank)
