"""Exercise e07: a parameter server.

In synchronous training all ranks add up their gradients, so each step takes as long as the slowest rank. Here nobody
waits for others. Rank 0 is the server: it has the weights. All others are workers: each computes a gradient at the
weights it has, sends it to the server, and gets new weights, again and again.

The server takes whichever gradient comes first, applies it, and answers that worker alone. A worker five times as slow
as the others sends a fifth of the gradients in the same time, and holds up nobody. The price: while a worker computes,
the server goes on, so that its gradient is of weights that are no longer the newest.

The check runs this on 2, 3, 4 and 7 virtual ranks, with slow workers among them, looks at who waits for whom, and then
runs it under mpirun.

Check it with `mpcourse check e07_parameter_server`. Stuck? `mpcourse hint e07_parameter_server`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
from mpi4py import MPI


def serve(comm, weights, learning_rate, steps):
    """Apply gradients in the order in which they arrive, from whichever worker, and answer each with the new weights.

    comm: an mpi4py communicator of two ranks or more. Rank 0 calls this function, while all others call `work`.
    weights: the model, a one-dimensional numpy array of float64. It is changed in place.
    learning_rate: a float. steps: how many gradients each worker sends, 0 or more.
    First every worker gets the weights as they are, also where steps is 0. How is up to you: it concerns all ranks, so
    a Bcast may do it. Then for each gradient: weights -= learning_rate * gradient, and the new weights go back to the
    worker that sent it, before the next gradient is applied. The last gradient of a worker is answered, too.
    Returns the ranks whose gradients were applied, in that order: a list of (comm.size - 1) * steps ints.
    """
    raise NotImplementedError("e07_parameter_server: give all workers the weights; then take gradients from any source, apply each, answer who sent it")


def work(comm, weights, gradient, steps):
    """Compute gradients at the weights that the server sent last, and send them to the server.

    comm: an mpi4py communicator. Every rank but 0 calls this function, while rank 0 calls `serve`.
    weights: a one-dimensional numpy array of float64, as long as the server's. Whatever is in it, it is overwritten.
    gradient: a function. gradient(weights) takes its time, and returns a new array of the same shape and dtype.
    steps: how many gradients this worker computes, 0 or more.
    Each time: compute the gradient at the newest weights that the server sent, send it as it is, get new weights.
    Afterwards this rank's `weights` are what the server sent last. Returns nothing.
    """
    raise NotImplementedError("e07_parameter_server: get the weights; then compute a gradient, send it, and receive the new weights")
