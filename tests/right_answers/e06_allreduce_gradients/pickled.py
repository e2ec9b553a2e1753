# right: lower-case allreduce moves tensors; who has a gradient is agreed on by a list of flags.
"""Exercise e06: every gradient becomes its mean over all ranks."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


def allreduce_gradients(comm, model):
    for name, p in model.named_parameters():
        had = comm.allreduce(int(p.grad is not None))
        if had:
            own = p.grad if p.grad is not None else torch.zeros_like(p.data)
            p.grad = comm.allreduce(own) / comm.size
