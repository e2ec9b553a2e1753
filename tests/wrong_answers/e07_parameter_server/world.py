# says: It speaks of MPI.COMM_WORLD
# on real ranks
# thinks: COMM_WORLD is the communicator.
"""Exercise e07: a parameter server."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
from mpi4py import MPI


def serve(comm, weights, learning_rate, steps):
    MPI.COMM_WORLD.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((MPI.COMM_WORLD.size - 1) * steps):
        MPI.COMM_WORLD.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        MPI.COMM_WORLD.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    MPI.COMM_WORLD.Bcast(weights)
    for _ in range(steps):
        MPI.COMM_WORLD.Send(gradient(weights), 0)
        MPI.COMM_WORLD.Recv(weights, 0)
