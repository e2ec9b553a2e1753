"""`create_communicator`, by name."""

from typing import Any

from mpcourse.data_parallel.bucketed import BucketedCommunicator
from mpcourse.data_parallel.communicator import Communicator
from mpcourse.data_parallel.flat import FlatCommunicator
from mpcourse.data_parallel.hierarchical import HierarchicalCommunicator
from mpcourse.data_parallel.naive import NaiveCommunicator
from mpcourse.data_parallel.nodes import nodes_of
from mpcourse.data_parallel.two_dimensional import TwoDimensionalCommunicator

COMMUNICATORS = {
    kind.name: kind
    for kind in (
        NaiveCommunicator,
        FlatCommunicator,
        HierarchicalCommunicator,
        TwoDimensionalCommunicator,
        BucketedCommunicator,
    )
}


def create_communicator(name: str = "bucketed", comm: Any = None, ranks_per_node: int | None = None) -> Communicator:
    """The communicator of that name. All ranks of `comm` call it, with the same name.

    name: one of COMMUNICATORS. comm: mpi4py's, or a virtual rank's; None: MPI.COMM_WORLD. ranks_per_node: pretend that
    each so many ranks in a row are on a machine of their own ($MPCOURSE_RANKS_PER_NODE); None: go by host names.
    Raises ValueError, on every rank, for an unknown name, for ranks with different ones, or where ranks do not make
    whole nodes and the communicator needs them.
    """
    if comm is None:
        from mpi4py import MPI  # only now: it makes this process a rank

        comm = MPI.COMM_WORLD
    names = comm.allgather(name)
    if len(set(names)) > 1:
        raise ValueError(f"ranks ask for different communicators: {', '.join(map(str, names))}")
    if name not in COMMUNICATORS:
        raise ValueError(f"no communicator is called {name!r}: there are {', '.join(COMMUNICATORS)}")
    nodes = nodes_of(comm, ranks_per_node)
    sizes = comm.allgather(nodes.intra.size)
    if name == "two_dimensional" and len(set(sizes)) > 1:
        raise ValueError(f"two_dimensional needs nodes with equally many ranks, and each rank's has {sizes} of them")
    return COMMUNICATORS[name](comm, nodes)
