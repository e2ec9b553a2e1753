# says: In a collective call
# thinks: Gather brings all gradients at once.
"""Exercise e07: a parameter server."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
from mpi4py import MPI


def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradients, order = np.empty((comm.size, len(weights))), []
    for _ in range(steps):
        comm.Gather(np.zeros_like(weights), gradients)
        for worker in range(1, comm.size):
            weights -= learning_rate * gradients[worker]
            comm.Send(weights, worker)
            order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Gather(gradient(weights), None)
        comm.Recv(weights, 0)
