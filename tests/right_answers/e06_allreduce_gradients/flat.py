# right: one float64 buffer for all, and the flags at its end.
"""Exercise e06: every gradient becomes its mean over all ranks."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


def allreduce_gradients(comm, model):
    held = [p for p in model.parameters() if p.requires_grad]
    n = sum(p.numel() for p in held)
    row, at = np.zeros(n + len(held)), 0
    for i, p in enumerate(held):
        if p.grad is not None:
            row[at : at + p.numel()] = p.grad.reshape(-1).numpy()
            row[n + i] = 1
        at += p.numel()
    total = np.empty_like(row)
    comm.Allreduce(row, total, op=MPI.SUM)
    at = 0
    for i, p in enumerate(held):
        part = total[at : at + p.numel()] / comm.Get_size()
        at += p.numel()
        if total[n + i]:
            p.grad = torch.from_numpy(part).view(p.shape).to(p.dtype)
