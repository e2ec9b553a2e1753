# says: An answer concerns one worker alone
# thinks: new weights are for all, and Bcast is how the server tells all.
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
        order.append(status.Get_source())
        comm.Bcast(weights)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Bcast(weights)
