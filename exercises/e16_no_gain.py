"""Exercise e16: the training that gains nothing from four ranks.

The program below fits a linear model to noisy examples. A rank takes 8 examples in a step. Four ranks use 32 examples
in a step, so the mean gradient has less noise, and the weights should become better: as good as those of one process
that takes 32 examples in a step. But in 120 steps, four ranks get no further than one rank with its 8 examples:

    4 ranks, 8 examples each    loss of held-out examples at the end: 0.5797
    1 rank, 8 examples          0.5884
    1 rank, 32 examples         0.5090

Other seeds show the same. At the end, all ranks have the same weights.

Evidence, in evidence/e16_no_gain/: `loss.csv`, the loss of held-out examples after each step, with one rank that takes
32 examples (expected) and with four ranks that take 8 each (this run); `one.log` and `ranks.log`, what these two runs
printed: in every twentieth step, each rank prints the loss of its examples. `mpirun -np 4 python
exercises/evidence/e16_no_gain/run.py 8` shows it again; with `-np 1` and 32, it is the expected run.

First name the cause in `diagnose`. Then mend the program.

Check it with `mpcourse check e16_no_gain`. Stuck? `mpcourse hint e16_no_gain`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
from mpi4py import MPI


def diagnose():
    """Return the name of the cause, one of these.

    "averaging": the gradients of the ranks are not averaged.
    "batch": the ranks share the 8 examples of a step, instead of taking 8 each.
    "examples": the ranks train on the same examples.
    "learning rate": the learning rate does not suit four times as many examples in a step.
    "order": the examples come in the same order in each epoch.
    "weights": the ranks begin with the same weights, so they cannot learn different things.
    """
    raise NotImplementedError("e16_no_gain: name the cause")


class Shard:
    """The examples of this rank in each step of an epoch. Its arguments are those of `train`."""

    def __init__(self, comm, data, batch, seed):
        self.rank, self.size = comm.rank, comm.size
        self.data, self.batch, self.seed = data, batch, seed
        self.steps = -(-len(data) // (batch * comm.size))  # rounded up; all ranks make as many

    def steps_of(self, epoch):
        """Yield x and y of this rank's examples in each step of an epoch."""
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.data))  # the same on all ranks
        own = [order[i] for i in range(0, len(order), self.size)]  # those with i % size == rank
        for step in range(self.steps):
            yield self.data.read(own[step * self.batch : (step + 1) * self.batch])


def train(comm, data, batch, epochs, rate, seed):
    """Fit y = x @ w by gradient descent on all ranks; return w after each step.

    comm: an mpi4py communicator.
    data: the data set, which all ranks can read. It has len(data) examples, 1 or more. data.read(indices) takes a
    sequence of ints, which may be empty, and returns x, float64 of shape (len(indices), data.features), and y, float64
    of shape (len(indices),). To read an example takes longer than all else.
    batch: examples of a rank in a step, 1 or more.
    epochs, rate: the number of epochs, 1 or more, and the learning rate.
    seed: an int, the same on all ranks.

    Epochs are counted from 0. The examples of an epoch have the order
    np.random.default_rng([seed, epoch]).permutation(len(data)). Rank r has those at the places r, r + size, r + 2 size
    and so on of this order. It takes `batch` of them in each step, one after the other; at the end of an epoch there
    may be fewer, or none. So all ranks together use each example exactly once in an epoch. A rank reads no other
    examples than its own, and reads each of them at most once in an epoch.

    w begins with zeros. The loss of an example is (x @ w - y) ** 2 / 2. A step subtracts from w rate times the gradient
    of the mean loss, over the examples of all ranks in this step. Returned is w after each step of all epochs, on all
    ranks: an array, float64 of shape (steps, data.features).

    A rank makes one collective call for each step, and one more for an epoch at most. It sends in a step no more than
    an Allreduce of data.features + 1 numbers does, and 256 bytes besides.
    """
    shard = Shard(comm, data, batch, seed)
    w, trace = np.zeros(data.features), []
    for epoch in range(epochs):
        for x, y in shard.steps_of(epoch):
            error = x @ w - y
            if len(trace) % 20 == 0:
                loss = error @ error / 2 / max(len(y), 1)  # there may be no example
                print(f"step {len(trace)}, rank {comm.rank}: {len(y)} examples, loss {loss}", flush=True)
            sums = np.append(error @ x, len(y))
            comm.Allreduce(MPI.IN_PLACE, sums)
            w -= rate * sums[:-1] / sums[-1]  # the mean over the examples of all ranks
            trace.append(w.copy())
    return np.array(trace)
