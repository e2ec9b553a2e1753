"""The naive communicator: a sum for each parameter."""

import torch

from mpcourse.collectives import allreduce
from mpcourse.data_parallel.communicator import Communicator
from mpcourse.data_parallel.memory import on_host


class NaiveCommunicator(Communicator):
    """As many sums as there are parameters, the shortest of a few bytes: each costs a message's latency at least.

    What every other communicator is an improvement on.
    """

    name = "naive"

    def _mean(self, parameters: list[torch.Tensor]) -> None:
        for p in parameters:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad / self.size
            with on_host(p.grad) as row:
                self._sum(row)

    def _sum(self, row: torch.Tensor) -> None:
        allreduce(self.comm, row)
