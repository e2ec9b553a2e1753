"""The hierarchical communicator: first inside each node, then between nodes."""

import torch

from mpcourse.collectives import hierarchical_allreduce
from mpcourse.data_parallel.communicator import Communicator


class HierarchicalCommunicator(Communicator):
    """One row, summed on each node's first rank, among these, and handed back: one rank of a node uses the network.

    For nodes with several GPUs and one slow link. The first ranks work while the others wait.
    """

    name = "hierarchical"

    def _sum(self, row: torch.Tensor) -> None:
        hierarchical_allreduce(self.comm, row, levels=(self.nodes.intra, self.nodes.inter))
