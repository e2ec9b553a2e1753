# says: of that very receive
# thinks: I look at the status when I need it, after the next gradient is safely here.
"""Exercise e07: a parameter server."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
from mpi4py import MPI


def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    total = (comm.size - 1) * steps
    buffers = [np.empty_like(weights) for _ in range(total)]
    status, order = MPI.Status(), []
    for i in range(total):
        comm.Recv(buffers[i], MPI.ANY_SOURCE, status=status)
        weights -= learning_rate * buffers[i]
        worker = i % (comm.size - 1) + 1
        comm.Send(weights, worker)
        order.append(status.Get_source())
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)
