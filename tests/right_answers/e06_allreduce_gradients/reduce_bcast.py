# right: to rank 0 and back, scaled before; written into the gradient that is there.
"""Exercise e06: every gradient becomes its mean over all ranks."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


def allreduce_gradients(comm, model):
    for p in model.parameters():
        if not p.requires_grad or not comm.allreduce(p.grad is not None, op=MPI.LOR):
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        row = np.ascontiguousarray(p.grad.numpy()).reshape(-1) / comm.size
        row = row.astype(p.grad.numpy().dtype)
        total = np.empty_like(row)
        comm.Reduce(row, total, root=0)
        comm.Bcast(total, root=0)
        with torch.no_grad():
            p.grad.copy_(torch.from_numpy(total).reshape(p.shape))
