# says: Then others starve
# thinks: whoever is found first came first.
"""Exercise e07: a parameter server."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
from mpi4py import MPI


def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, order = np.empty_like(weights), []
    while len(order) < (comm.size - 1) * steps:
        for worker in range(1, comm.size):
            if comm.Iprobe(worker):
                comm.Recv(gradient, worker)
                weights -= learning_rate * gradient
                comm.Send(weights, worker)
                order.append(worker)
                break
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)
