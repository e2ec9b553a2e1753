# right: float64 holds every integer up to 2 ** 53; numpy's float64 is a float.
"""Exercise e06: the accuracy of all ranks together."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
from mpi4py import MPI


def evaluate(comm, correct, count):
    mine, both = np.array([correct, count], dtype="d"), np.empty(2)
    comm.Allreduce([mine, MPI.DOUBLE], [both, MPI.DOUBLE], op=MPI.SUM)
    if not both[1]:
        raise ValueError("nothing was evaluated")
    return both[0] / both[1]
