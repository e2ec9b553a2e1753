"""Exercise e16: the training that stops at the end of an epoch.

The program below fits a line on several ranks. On 2 ranks it has always worked. On 3 ranks, it stops without an error
before it prints the loss of the first epoch. All three processes are busy, and nothing happens any more.

Evidence, in evidence/e16_stops/: `ranks.log`, what all ranks printed; `py-spy.txt`, where each rank was after ten
seconds (`py-spy dump` of each process). `mpirun -np 3 python exercises/evidence/e16_stops/run.py` shows it again; end
it with Ctrl-C.

First name the cause in `diagnose`. Then mend `train`, which must not do more than it has to: a step is one Allreduce.

Check it with `mpcourse check e16_stops`. Stuck? `mpcourse hint e16_stops`.
"""

import numpy as np

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def diagnose():
    """Return the name of the cause, one of these.

    "slow rank": a rank computes so slowly that the others seem to hang.
    "lost message": the network has lost a message, and a rank waits for it.
    "order": ranks make the same collective calls in different orders.
    "steps": ranks make different numbers of steps.
    "exception": a rank has raised an exception, and the others wait for it.
    """
    # solution: name the cause
    return "steps"
    # end of solution


def train(comm, x, y, batch, epochs, rate):
    """Fit y = w[0] * x + w[1] by gradient descent on all ranks; return w and the mean loss of each epoch, on all ranks.

    comm: an mpi4py communicator.
    x, y: the whole data set on all ranks, float64, of shape (n,). n is 1 or more.
    batch: examples of a rank in a step, 1 or more.

    Rank r has the examples r, r + size, r + 2 size and so on, in this order, and takes `batch` of them in a step; at
    the end there may be fewer. A step averages the gradient over the examples of all ranks in this step. In an epoch,
    each example is used once. The loss of an example is (w[0] * x + w[1] - y) ** 2 / 2, before its step's update.
    """
    own_x, own_y = x[comm.rank :: comm.size], y[comm.rank :: comm.size]
    w, losses = np.zeros(2), []
    for epoch in range(epochs):
        total = 0.0
        # solution: all ranks take as many steps as rank 0, which has most examples
        # found: steps = -(-len(own_x) // batch)  # rounded up
        steps = -(-len(x[:: comm.size]) // batch)
        # end of solution
        for step in range(steps):
            begin = step * batch
            part_x, part_y = own_x[begin : begin + batch], own_y[begin : begin + batch]
            error = w[0] * part_x + w[1] - part_y
            sums = np.array([(error * part_x).sum(), error.sum(), (error**2).sum() / 2, len(part_x)])
            comm.Allreduce(sums.copy(), sums)
            w -= rate * sums[:2] / sums[3]
            total += sums[2]
        comm.Barrier()  # rank 0 prints when all have finished the epoch
        losses.append(total / len(x))
        if comm.rank == 0:
            print(f"epoch {epoch}: loss {losses[-1]:.4f}")
    return w, losses
