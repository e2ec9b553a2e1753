# says: The worker changes the weights itself, too
# thinks: the worker learns, too.
"""Exercise e07: a parameter server."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
from mpi4py import MPI


def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * gradient
        comm.Send(weights, status.Get_source())
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        own = gradient(weights)
        comm.Send(own, 0)
        comm.Recv(weights, 0)
        weights -= own
