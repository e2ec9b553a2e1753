# says: A frozen parameter (requires_grad is False) has no gradient
"""Exercise e06: every gradient becomes its mean over all ranks."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


def allreduce_gradients(comm, model):
    for p in model.parameters():
        row = p.grad.contiguous()
        comm.Allreduce(MPI.IN_PLACE, row.numpy())
        p.grad = row / comm.size
