"""`create_communicator`, by name, and `create_multi_node_optimizer`: what a program calls, as with ChainerMN."""

from typing import Any

import torch
from torch import nn

from mpcourse.common.comm import Comm
from mpcourse.data_parallel.checked.communicator import CheckedCommunicator
from mpcourse.data_parallel.communicator import Communicator
from mpcourse.data_parallel.communicators import (
    FlatCommunicator,
    HierarchicalCommunicator,
    NaiveCommunicator,
    TwoDimensionalCommunicator,
)
from mpcourse.data_parallel.double_buffering import DoubleBufferedOptimizer
from mpcourse.data_parallel.nodes import nodes_of
from mpcourse.data_parallel.optimizer import MultiNodeOptimizer
from mpcourse.data_parallel.overlap.bucketed import BucketedCommunicator
from mpcourse.data_parallel.overlap.checked import CheckedBuckets

COMMUNICATORS: dict[str, type[Communicator]] = {
    kind.name: kind
    for kind in (
        NaiveCommunicator,
        FlatCommunicator,
        HierarchicalCommunicator,
        TwoDimensionalCommunicator,
        BucketedCommunicator,
    )
}


def create_communicator(
    name: str = "bucketed", comm: Comm | None = None, ranks_per_node: int | None = None, **options: int
) -> CheckedCommunicator:
    """Return the communicator of that name, with checks. All ranks of `comm` call it, with the same name and options.

    name: one of COMMUNICATORS.
    comm: mpi4py's, or a virtual rank's; None: MPI.COMM_WORLD.
    ranks_per_node: treat so many ranks in a row as a node ($MPCOURSE_RANKS_PER_NODE); None: compare host names.
    options: for "bucketed", bucket_bytes and first_bucket_bytes.
    Raises ValueError, on every rank, for an unknown name, where ranks give different names, or where ranks do not make
    whole nodes and the communicator needs them; TypeError for an option that the communicator does not have.
    """
    if comm is None:
        from mpi4py import MPI  # imported only now, because it makes this process a rank

        comm = MPI.COMM_WORLD
    asked = comm.allgather((name, options))
    names = [each for each, _ in asked]
    if len(set(names)) > 1:
        raise ValueError(f"ranks ask for different communicators: {', '.join(map(str, names))}")
    if name not in COMMUNICATORS:
        raise ValueError(f"no communicator is called {name!r}: there are {', '.join(COMMUNICATORS)}")
    if asked.count((name, options)) < len(asked):
        raise ValueError(f"ranks ask for different options: {[each for _, each in asked]}")
    if unknown := sorted(set(options) - ({"bucket_bytes", "first_bucket_bytes"} if name == "bucketed" else set())):
        raise TypeError(f"{name} communicators have no option {unknown[0]!r}")
    nodes = nodes_of(comm, ranks_per_node)
    sizes = comm.allgather(nodes.intra.size)
    if name == "two_dimensional" and len(set(sizes)) > 1:
        raise ValueError(f"two_dimensional needs nodes with equally many ranks, and each rank's has {sizes} of them")
    return checked(COMMUNICATORS[name](comm, nodes, **options))


def checked(communicator: Communicator) -> CheckedCommunicator:
    """Wrap `communicator` in the checks that fit it. All ranks call it together.

    communicator: of any kind, without checks.
    """
    kind: Any = CheckedBuckets if isinstance(communicator, BucketedCommunicator) else CheckedCommunicator
    return kind(communicator)


def create_multi_node_optimizer(
    optimizer: torch.optim.Optimizer,
    communicator: CheckedCommunicator,
    double_buffering: bool = False,
    *,
    model: nn.Module | None = None,
) -> MultiNodeOptimizer:
    """Return a MultiNodeOptimizer or a DoubleBufferedOptimizer, as ChainerMN's function does. All ranks call it.

    optimizer: any of torch's, with this rank's parameters.
    communicator: made by `create_communicator`.
    double_buffering: a step applies the mean gradient of the step before, which was summed meanwhile.
    model: its names are used in messages, and its buffers are broadcast, too; None: only the optimizer's parameters are
    known.
    Raises ValueError, on every rank, where ranks hold different parameters.
    """
    kind = DoubleBufferedOptimizer if double_buffering else MultiNodeOptimizer
    return kind(optimizer, communicator, model=model)
