# says: Each rank has stepped by its own gradients
"""Exercise e06: ChainerMN's multi-node optimizer."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def _average(self):
        held = self._held()
        having = self.comm.allreduce(np.array([p.grad is not None for p in held], dtype=int))
        for p, ranks in zip(held, having):
            if ranks:
                own = torch.zeros_like(p.data) if p.grad is None else p.grad
                p.grad = self.comm.allreduce(own) / self.comm.size

    def step(self):
        self.optimizer.step()
