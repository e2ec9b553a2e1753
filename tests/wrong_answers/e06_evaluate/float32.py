# says: float32 has 24 binary digits
"""Exercise e06: the accuracy of all ranks together."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
from mpi4py import MPI


def evaluate(comm, correct, count):
    both = np.array([correct, count], dtype=np.float32)
    comm.Allreduce(MPI.IN_PLACE, both)
    if both[1] == 0:
        raise ValueError("no examples")
    return float(both[0] / both[1])
