# says: applied before the answer
# thinks: push and pull are two requests, each served when it comes.
"""Exercise e07: a parameter server."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
from mpi4py import MPI


def serve(comm, weights, learning_rate, steps):
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range(2 * (comm.size - 1) * steps):
        comm.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        worker = status.Get_source()
        if status.Get_tag() == 1:
            comm.Recv(gradient, worker, 1)
            weights -= learning_rate * gradient
            order.append(worker)
        else:
            comm.recv(source=worker, tag=2)
            comm.Send(weights, worker, 3)
    return order


def work(comm, weights, gradient, steps):
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0, 1)
        comm.send(None, 0, 2)
        comm.Recv(weights, 0, 3)
