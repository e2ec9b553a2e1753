# says: It speaks of MPI.COMM_WORLD
"""Exercise e06: the accuracy of all ranks together."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

# on real ranks: virtual ones are all in COMM_WORLD
import numpy as np
from mpi4py import MPI


def evaluate(comm, correct, count):
    world = MPI.COMM_WORLD
    right, examples = world.allreduce(correct), world.allreduce(count)
    if examples == 0:
        raise ValueError("no examples")
    return right / examples
