# says: or with the newest
# thinks: what is on top of the list is next.
"""Exercise e07: a parameter server."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
from mpi4py import MPI


def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    stack, status, order = [], MPI.Status(), []
    while len(order) < (comm.size - 1) * steps:
        while not stack or comm.Iprobe(MPI.ANY_SOURCE):
            gradient = np.empty_like(weights)
            comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
            stack.append((status.Get_source(), gradient))
        worker, gradient = stack.pop()
        weights -= learning_rate * gradient
        comm.Send(weights, worker)
        order.append(worker)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)
