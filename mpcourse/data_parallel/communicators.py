"""ChainerMN's communicators: they differ in how gradients are summed, and get the same means."""

import torch

from mpcourse.collectives import allreduce, hierarchical_allreduce, ring_allgather, ring_reduce_scatter
from mpcourse.collectives.buffers import chunks
from mpcourse.data_parallel.communicator import Communicator
from mpcourse.data_parallel.parameters import Model, trained_parameters


class NaiveCommunicator(Communicator):
    """An all-reduce for each parameter, even one of a few bytes: each costs at least a message's latency."""

    name = "naive"

    def mean_gradients(self, model: Model) -> None:
        for p in trained_parameters(model).values():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad / self.size
            self.allreduce(p.grad)


class FlatCommunicator(Communicator):
    """All gradients in one flat buffer, and one all-reduce: its latency is paid once, at the cost of one copy."""

    name = "flat"


class HierarchicalCommunicator(Communicator):
    """One flat buffer, summed on each node's first rank, among these, and broadcast inside the nodes.

    This is for nodes with several GPUs and one slow link, which only one rank of a node uses. The first ranks work
    while the others wait.
    """

    name = "hierarchical"

    def sum(self, buffer: torch.Tensor) -> None:
        hierarchical_allreduce(self.comm, buffer, levels=(self.nodes.intra, self.nodes.inter))


class TwoDimensionalCommunicator(Communicator):
    """Reduce-scatter inside a node, all-reduce of each rank's chunk between nodes, all-gather inside.

    All ranks of a node send over the network, each its own chunk: together as many bytes as one rank would send, on as
    many links as there are. All nodes must have equally many ranks.
    """

    name = "two_dimensional"

    def sum(self, buffer: torch.Tensor) -> None:
        intra, inter = self.nodes.intra, self.nodes.inter
        chunk = chunks(buffer, intra.size)
        ring_reduce_scatter(intra, chunk)
        own = (intra.rank + 1) % intra.size  # the chunk that the ring leaves here
        allreduce(inter, chunk[own])
        ring_allgather(intra, chunk)
