"""Sharding within a node only, where links are fast: each node has all of the state."""

from mpcourse.common.comm import Comm
from mpcourse.data_parallel.nodes import nodes_of


def within_nodes(comm: Comm, ranks_per_node: int | None = None) -> dict[str, Comm]:
    """Return the arguments `comm` and `replicas` of sharded optimizers, for sharding within a node.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    ranks_per_node: treat so many ranks in a row as a node; None: compare host names.

    comm holds the ranks of this node, and replicas the ranks with this rank's number in their nodes. Use them as in
    `ShardedParameters(make, model, **within_nodes(comm))`. Messages of stage 3 stay within the node. Between nodes, the
    ranks of one shard all-reduce its gradients, P / p values of P parameters over p ranks per node, as
    hybrid sharding does (FSDP, Zhao et al. 2023, section 3.2.2; MiCS, Zhang et al. 2022).
    Raises ValueError, on every rank, where nodes differ in their number of ranks.
    """
    nodes = nodes_of(comm, ranks_per_node)
    if len(set(comm.allgather(nodes.intra.size))) > 1:
        raise ValueError("nodes have different numbers of ranks: shards would not be the same on all nodes")
    return {"comm": nodes.intra, "replicas": nodes.inter}
