# right: replaces the wrapped optimizer's step by one that averages before.
"""Exercise e06: ChainerMN's multi-node optimizer."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


def MultiNodeOptimizer(optimizer, comm):
    held = [p for group in optimizer.param_groups for p in group["params"]]
    for p in held:
        p.data.copy_(comm.bcast(p.data))
    inner = optimizer.step

    def step():
        anywhere = comm.allreduce(np.array([p.grad is not None for p in held], dtype=np.int64)) > 0
        for p in (p for p, yes in zip(held, anywhere) if yes):
            p.grad = comm.allreduce((torch.zeros_like(p.data) if p.grad is None else p.grad) / comm.size)
        inner()

    optimizer.step = step
    return optimizer
