# right: gradients are gathered while backward runs, by hooks without messages; step sums what hooks kept.
"""Exercise e06: ChainerMN's multi-node optimizer."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm, self.kept = optimizer, comm, {}
        self.param_groups, self.state = optimizer.param_groups, optimizer.state
        self.held = [p for group in optimizer.param_groups for p in group["params"]]
        for i, p in enumerate(self.held):
            with torch.no_grad():
                p.set_(comm.bcast(p.detach().clone()))
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(lambda q, i=i: self.kept.update({i: q.grad / comm.size}))

    def zero_grad(self):
        self.kept.clear()
        self.optimizer.zero_grad(set_to_none=True)

    def step(self):
        total = {}
        for own in self.comm.allgather(self.kept):
            for i, g in own.items():
                total[i] = total[i] + g if i in total else g.clone()
        for i, p in enumerate(self.held):
            p.grad = total.get(i)
        self.optimizer.step()
