# right: a buffer for each dtype, by torch.cat and split; gradients are views of it.
"""Exercise e06: every gradient becomes its mean over all ranks."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


def allreduce_gradients(comm, model):
    held = [p for p in model.parameters() if p.requires_grad]
    flags = comm.allgather([p.grad is not None for p in held])
    held = [p for p, *own in zip(held, *flags) if any(own)]
    for dtype in (torch.float32, torch.float64):
        alike = [p for p in held if p.dtype == dtype]
        if not alike:
            continue
        grads = [torch.zeros(p.numel(), dtype=dtype) if p.grad is None else p.grad.flatten() for p in alike]
        row = torch.cat(grads).div_(comm.size)
        comm.Allreduce(MPI.IN_PLACE, row)
        for p, part in zip(alike, row.split([p.numel() for p in alike])):
            p.grad = part.view_as(p)
