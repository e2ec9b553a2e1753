# says: sent ahead of its gradient
# thinks: a worker says who it is, and then computes.
"""Exercise e07: a parameter server."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
from mpi4py import MPI


def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, order = np.empty_like(weights), []
    for _ in range((comm.size - 1) * steps):
        worker = comm.recv(source=MPI.ANY_SOURCE, tag=1)
        comm.Recv(gradient, worker, tag=2)
        weights -= learning_rate * gradient
        comm.Send(weights, worker)
        order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.send(comm.rank, 0, tag=1)
        comm.Send(gradient(weights), 0, tag=2)
        comm.Recv(weights, 0)
