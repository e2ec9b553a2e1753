# right: a torch optimizer by inheritance, which shares the groups.
"""Exercise e06: ChainerMN's multi-node optimizer."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


class MultiNodeOptimizer(torch.optim.Optimizer):
    def __init__(self, optimizer, comm):
        super().__init__(optimizer.param_groups, dict(optimizer.defaults))
        self.actual, self.comm = optimizer, comm
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.copy_(comm.bcast(p.detach(), root=0))

    def step(self, closure=None):
        everyone = self.comm.allgather([p.grad for group in self.param_groups for p in group["params"]])
        held = [p for group in self.param_groups for p in group["params"]]
        for p, *found in zip(held, *everyone):
            found = [g for g in found if g is not None]
            if found:
                p.grad = sum(found) / self.comm.size
        self.actual.step()
