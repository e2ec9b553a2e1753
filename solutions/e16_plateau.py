"""Exercise e16: the training whose loss stops falling after a quarter of the run.

The program below trains a small network. One process takes 32 examples in each update, and the loss falls until the
end. Four ranks share the same 32 examples: each rank takes 8 of them. There, the loss falls even faster at first. But
after a quarter of the run it stops falling, and it ends higher. Other seeds, and more epochs, show the same.

Evidence, in evidence/e16_plateau/: `loss.csv`, the loss of each update in one process (expected) and on four ranks
(this run); `one.log` and `ranks.log`, what these two runs printed, sorted by update and rank: in every tenth update, a
line of each rank. Its last two numbers are the norms of the averaged gradient and of what the update changes. `mpirun
-np 4 python exercises/evidence/e16_plateau/run.py` shows it again; with `-np 1` it is the one process.

First name the cause in `diagnose`. Then mend `train`.

Check it with `mpcourse check e16_plateau`. Stuck? `mpcourse hint e16_plateau`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
from mpi4py import MPI
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def diagnose():
    """Return the name of the cause, one of these.

    "batch": the gradient is averaged over so many examples that it has too little noise to get further.
    "data": the examples are used up after a quarter of the run.
    "gradients": the gradients have vanished, so the weights stay as they are.
    "peak": the highest learning rate is too high for four ranks.
    "schedule": the learning rate rises and falls at the wrong times.
    "weights": the ranks have different weights, and their gradients do not fit together.
    """
    # solution: name the cause
    return "schedule"
    # end of solution


def rate_of(number, warmup, updates, peak):
    """Return the learning rate: it rises to the peak in the first `warmup` updates, and then falls to 0."""
    if number < warmup:
        return peak * (number + 1) / warmup
    return peak * max(0.0, (updates - number) / max(1, updates - warmup))


def train(comm, model, x, y, batch, epochs, warmup, peak):
    """Train the model by gradient descent; return the losses of the updates, a list of floats, the same on all ranks.

    comm: an mpi4py communicator.
    model: a torch.nn.Module, the same on all ranks. For an input of shape (n, features) it returns an output of shape
    (n, 1), also for n = 0. Its parameters are float64. `train` changes them, in the same way on all ranks.
    x, y: the whole data set on all ranks, float64 tensors of shape (n, features) and (n, 1). n is 1 or more.
    batch: examples of a rank in an update, 1 or more.
    epochs: how often each example is used, 1 or more.
    warmup: how many updates the learning rate rises for, 0 or more.
    peak: the highest learning rate.

    The data set is cut into batches; the last one may be smaller. An update takes the next batches, one for each rank
    in the order of ranks. In the last update of an epoch, there may be none for the last ranks. A rank runs its own
    batches only. The loss of an example is (model(x) - y) ** 2 / 2. The loss of an update is the mean over its
    examples on all ranks, before the update. The update subtracts its learning rate times the gradient of this mean.

    Of all updates of the training, K on this number of ranks, update k = 0, 1, ..., K - 1 has the learning rate
    peak * (k + 1) / warmup if k < warmup, and peak * (K - k) / (K - warmup) otherwise. The number of ranks changes
    neither the peak nor the length of the warm-up.

    An update makes one collective call. It sends no more than an Allreduce of one number for each parameter, and 16
    numbers besides. There are no other collective calls.
    """
    parameters, losses = list(model.parameters()), []
    batches = -(-len(x) // batch)  # in an epoch; rounded up
    updates = epochs * -(-batches // comm.size)  # an update takes a batch of each rank
    for epoch in range(epochs):
        for first in range(0, batches, comm.size):
            number = epoch * batches + first  # of rank 0's batch, in the whole training
            begin = (first + comm.rank) * batch
            part_x, part_y = x[begin : begin + batch], y[begin : begin + batch]
            model.zero_grad()
            loss = ((model(part_x) - part_y) ** 2).sum() / 2
            loss.backward()
            sums = np.concatenate([*(p.grad.numpy().ravel() for p in parameters), [loss.item(), len(part_x)]])
            comm.Allreduce(MPI.IN_PLACE, sums)
            gradient = torch.from_numpy(sums[:-2] / sums[-1])
            # solution: the schedule counts updates
            # found: rate = rate_of(number, warmup, updates, peak)
            rate = rate_of(len(losses), warmup, updates, peak)
            # end of solution
            before = parameters_to_vector(parameters).detach()
            vector_to_parameters(before - rate * gradient, parameters)
            if len(losses) % 10 == 0:
                change, own = parameters_to_vector(parameters).detach() - before, loss.item() / max(len(part_x), 1)
                print(
                    f"update {len(losses)}, rank {comm.rank}: batch {number + comm.rank}, {len(part_x)} examples, "
                    f"loss {own:.6f}, gradient {gradient.norm():.6f}, update {change.norm():.6f}",
                    flush=True,
                )
            losses.append(float(sums[-2] / sums[-1]))
    return losses
