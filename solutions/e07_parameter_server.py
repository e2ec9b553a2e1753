"""Exercise e07: a parameter server.

In synchronous training the ranks sum their gradients, so each step takes as long as the slowest rank. Here no worker
waits for another. Rank 0 is the server and holds the weights. All other ranks are workers. Again and again a worker
computes a gradient at its weights, sends it to the server, and receives new weights.

The server applies each gradient as soon as it arrives, and answers only its sender. A worker that is five times as slow
as the others sends a fifth of the gradients in the same time, and delays no other worker. But while a worker computes,
the server changes the weights, so the gradient belongs to weights that are no longer the newest.

The check runs your program on 2, 3, 4 and 7 virtual ranks, some of them slow, and finds out which ranks wait for which.
Then it runs the program under mpirun.

Check it with `mpcourse check e07_parameter_server`. Stuck? `mpcourse hint e07_parameter_server`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
from mpi4py import MPI


def serve(comm, weights, learning_rate, steps):
    """Apply gradients in the order in which they arrive, and answer each sender with the new weights.

    comm: an mpi4py communicator of two ranks or more. Rank 0 calls this function, while all others call `work`.
    weights: the model, a one-dimensional numpy array of float64. It is changed in place.
    learning_rate: a float. steps: how many gradients each worker sends, 0 or more.
    First send the weights as they are to every worker, even if steps is 0. A Bcast can do this, because all ranks take
    part. Then, for each gradient, compute weights -= learning_rate * gradient, and send the new weights to the worker
    that sent the gradient before you apply the next one. Answer the last gradient of each worker as well.
    Returns the sender of each gradient, in the order in which the gradients were applied: a list of
    (comm.size - 1) * steps ints.
    """
    # solution: send all workers the weights; then receive gradients from any rank, apply each, and answer its sender
    comm.Bcast(weights)
    gradient, status, order = np.empty_like(weights), MPI.Status(), []
    for _ in range((comm.size - 1) * steps):
        comm.Recv(gradient, MPI.ANY_SOURCE, status=status)
        worker = status.Get_source()
        weights -= learning_rate * gradient
        comm.Send(weights, worker)
        order.append(worker)
    return order
    # end of solution


def work(comm, weights, gradient, steps):
    """Compute gradients at the weights that the server sent last, and send them to the server.

    comm: an mpi4py communicator. Every rank but 0 calls this function, while rank 0 calls `serve`.
    weights: a one-dimensional numpy array of float64, as long as the server's. It is overwritten.
    gradient: a function. gradient(weights) takes some time, and returns a new array of the same shape and dtype.
    steps: how many gradients this worker computes, 0 or more.
    In each step compute the gradient at the newest weights that the server sent, send it unchanged, and receive new
    weights. Afterwards this rank's `weights` are what the server sent last. Returns nothing.
    """
    # solution: get the weights; then compute a gradient, send it, and receive the new weights
    comm.Bcast(weights)
    for _ in range(steps):
        comm.Send(gradient(weights), 0)
        comm.Recv(weights, 0)
    # end of solution
