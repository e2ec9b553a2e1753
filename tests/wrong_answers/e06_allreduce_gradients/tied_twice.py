# says: It is one parameter under two names
"""Exercise e06: every gradient becomes its mean over all ranks."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


def allreduce_gradients(comm, model):
    own = [m for _, m in model.named_modules()]
    held = [p for m in own for p in m._parameters.values() if p is not None and p.requires_grad]
    for p in held:
        if comm.allreduce(p.grad is not None):
            p.grad = comm.allreduce(torch.zeros_like(p) if p.grad is None else p.grad)
    for p in model.parameters():
        if p.grad is not None:
            p.grad /= comm.size
