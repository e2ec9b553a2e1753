"""Which ranks share a machine: for sums in two levels, and for what is done once on each machine."""

import os
from typing import Any, NamedTuple

from mpcourse.common.comm import Comm
from mpcourse.virtual import mpi_of

RANKS_PER_NODE = "MPCOURSE_RANKS_PER_NODE"


class Nodes(NamedTuple):
    """One rank's place among the nodes.

    intra: communicator of the ranks on its node.
    inter: communicator of the ranks with its number in their nodes.
    inter_rank: number of its node; nodes are counted in the order of their first ranks.
    inter_size: number of nodes.
    """

    intra: Any
    inter: Any
    inter_rank: int
    inter_size: int


def nodes_of(comm: Comm, ranks_per_node: int | None = None) -> Nodes:
    """Group ranks by the name of their host.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    ranks_per_node: treat so many ranks in a row as a node of their own, as on several machines; None: what
    $MPCOURSE_RANKS_PER_NODE says, if anything.
    Raises ValueError, on every rank, for a number below 1, or where ranks were given different ones.
    """
    asked = ranks_per_node if ranks_per_node is not None else os.environ.get(RANKS_PER_NODE)
    by_rank = comm.allgather((mpi_of(comm).Get_processor_name(), asked))
    if len({asked for _, asked in by_rank}) > 1:
        raise ValueError(f"ranks got different values of ranks_per_node: {[asked for _, asked in by_rank]}")
    if asked is not None:
        try:
            each = int(asked)
        except ValueError:
            each = 0
        if each < 1:
            raise ValueError(f"ranks_per_node (or ${RANKS_PER_NODE}) is {asked!r}: 1 or more ranks make a node")
        names: list[Any] = [rank // each for rank in range(comm.size)]
    else:
        names = [name for name, _ in by_rank]
    order = list(dict.fromkeys(names))
    node = order.index(names[comm.rank])
    intra = comm.Split(node, comm.rank)
    return Nodes(intra, comm.Split(intra.rank, comm.rank), node, len(order))
