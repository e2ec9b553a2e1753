"""Two levels: inside a node, where links are fast, and between nodes, where they are slow and shared."""

from mpcourse.collectives.buffers import Array, Op
from mpcourse.collectives.rabenseifner import rabenseifner_allreduce
from mpcourse.collectives.tree import broadcast, reduce
from mpcourse.comm import Comm
from mpcourse.virtual import mpi_of


def hierarchical_allreduce(
    comm: Comm, x: Array, op: Op | None = None, *, levels: tuple[Comm, Comm] | None = None
) -> None:
    """Sum x over all ranks, in place: to each node's first rank, among these, and back into the nodes.

    All ranks call it. x: a contiguous numpy array or CPU tensor of any shape, of one length and dtype on all ranks. op:
    an associative and commutative operation on two flat buffers instead of the sum. Only one rank of a node talks to
    other nodes, so a slow link carries what one rank sends and not what all would. levels: what `two_levels(comm)`
    returned, where it is used more than once: making communicators is collective and takes time. All ranks get the same
    bits. Raises TypeError or ValueError for what cannot be reduced in place.
    """
    inside, leaders = levels or two_levels(comm)
    reduce(inside, x, op)
    if inside.rank == 0:
        rabenseifner_allreduce(leaders, x, op)
    broadcast(inside, x)


def two_levels(comm: Comm) -> tuple[Comm, Comm]:
    """A communicator of this rank's node, and one of all ranks that have this rank's number in their nodes.

    All ranks call it. Ranks that share memory are a node.
    """
    inside = comm.Split_type(mpi_of(comm).COMM_TYPE_SHARED, comm.rank)
    return inside, comm.Split(inside.rank, comm.rank)
