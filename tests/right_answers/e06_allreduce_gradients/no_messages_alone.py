# right: a rank alone has nothing to do; elsewhere requests are waited for at the end.
"""Exercise e06: every gradient becomes its mean over all ranks."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


def allreduce_gradients(comm, model):
    if comm.size == 1:
        return
    held = list(model.parameters())
    having = np.array([p.grad is not None for p in held], dtype="i")
    anybody = np.empty_like(having)
    comm.Allreduce(having, anybody, MPI.MAX)
    held = [p for p, yes in zip(held, anybody) if yes]
    rows, requests = [], []
    for p in held:
        row = torch.zeros(p.shape, dtype=p.dtype) if p.grad is None else p.grad.clone(memory_format=torch.contiguous_format)
        rows.append(row)
        requests.append(comm.Iallreduce(MPI.IN_PLACE, row.numpy()))
    MPI.Request.Waitall(requests)
    for p, row in zip(held, rows):
        p.grad = row.mul_(1 / comm.size)
