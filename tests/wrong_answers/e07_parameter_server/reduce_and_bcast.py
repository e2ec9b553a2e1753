# says: In a collective call
# thinks: summing gradients is what Reduce is for.
"""Exercise e07: a parameter server."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
from mpi4py import MPI


def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    total, order = np.zeros_like(weights), []
    for _ in range(steps):
        total[:] = 0
        comm.Reduce(MPI.IN_PLACE, total)
        weights -= learning_rate * total
        comm.Bcast(weights)
        order += range(1, comm.size)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Reduce(gradient(weights), None)
        comm.Bcast(weights)
