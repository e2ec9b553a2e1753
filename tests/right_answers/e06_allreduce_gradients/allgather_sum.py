# right: all gradients on all ranks; the sum is everybody's own, in one order.
"""Exercise e06: every gradient becomes its mean over all ranks."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


def allreduce_gradients(comm, model):
    own = {name: p.grad for name, p in model.named_parameters()}
    everyone = comm.allgather(own)
    for name, p in model.named_parameters():
        there = [grads[name] for grads in everyone if grads[name] is not None]
        if there:
            p.grad = sum(there[1:], start=there[0].clone()).div(comm.size)
