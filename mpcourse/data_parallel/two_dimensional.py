"""The two-dimensional communicator: each rank of a node takes a part of the row to the other nodes."""

import torch

from mpcourse.collectives import allreduce, ring_allgather, ring_reduce_scatter
from mpcourse.collectives.buffers import offsets
from mpcourse.data_parallel.communicator import Communicator


class TwoDimensionalCommunicator(Communicator):
    """Reduce-scatter inside a node, all-reduce of each rank's chunk between nodes, all-gather inside.

    All ranks of a node send over the network, each its own chunk: together as many bytes as one of them would send, on
    as many links as there are. Every node must have as many ranks as the others.
    """

    name = "two_dimensional"

    def _sum(self, row: torch.Tensor) -> None:
        intra = self.nodes.intra
        at = offsets(len(row), intra.size)
        own = (intra.rank + 1) % intra.size  # what ring_reduce_scatter leaves here
        ring_reduce_scatter(intra, row)
        allreduce(self.nodes.inter, row[at[own] : at[own + 1]])
        ring_allgather(intra, row)
