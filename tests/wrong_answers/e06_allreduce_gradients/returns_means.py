# says: Something was returned, and the gradient is as it was
"""Exercise e06: every gradient becomes its mean over all ranks."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI


def allreduce_gradients(comm, model):
    return [None if p.grad is None else comm.allreduce(p.grad) / comm.size for p in model.parameters()]
