# right: a hook of torch before the wrapped optimizer's step averages.
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
        rows = comm.bcast([p.data for p in self.parameters()], root=0)
        for p, row in zip(self.parameters(), rows):
            p.data.copy_(row)
        optimizer.register_step_pre_hook(self.average)

    def parameters(self):
        for group in self.optimizer.param_groups:
            yield from group["params"]

    def average(self, optimizer, args, kwargs):
        for p in self.parameters():
            found = [g for g in self.comm.allgather(p.grad) if g is not None]
            p.grad = torch.stack(found).sum(0).div(self.comm.size) if found else None

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self):
        self.optimizer.step()
