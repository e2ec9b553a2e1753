# says: Divided by the number of ranks twice
"""Exercise e06: every gradient becomes its mean over all ranks."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        row = p.grad.contiguous() / comm.size
        comm.Allreduce(MPI.IN_PLACE, row.numpy())
        p.grad = row / comm.size
