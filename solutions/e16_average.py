"""Exercise e16: the average that is no better than the last weights.

The program below fits a linear model to noisy examples, with a constant learning rate. So the weights never come to
rest: after an epoch they are near the best ones, but not there. The mean of the weights after the last 10 epochs should
be nearer. It was nearer while one process made steps of 32 examples, with DataLoader(data, 32, shuffle=True). Now four
ranks take 8 examples each in a step, and the mean gains nothing:

    loss of held-out examples    with the last weights    with the mean of the last 10
    one process                  0.7053                   0.6198
    4 ranks                      0.6736                   0.6734
    4 ranks, another seed        0.6415                   0.6414

Evidence, in evidence/e16_average/: `loss.csv`, the loss of each step in one process (expected) and on four ranks (this
run); `one.log` and `ranks.log`, what these two runs printed: after each epoch, a line of each rank; `seed.log`, the
same of four ranks with the other seed. Lines are sorted by epoch and rank. An epoch has 960 examples in 30 steps.
`mpirun -np 4 python exercises/evidence/e16_average/run.py` shows it again; with 6 behind that, it has the other seed,
and with `-np 1`, it is the one process.

First name the cause in `diagnose`. Then mend `train`.

Check it with `mpcourse check e16_average`. Stuck? `mpcourse hint e16_average`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DataLoader, DistributedSampler


def diagnose():
    """Return the name of the cause, one of these.

    "average": the list of weights holds the last weights several times.
    "learning rate": the learning rate does not suit four ranks.
    "order": the examples are shuffled, but come in the same order in each epoch.
    "overlap": some examples are used by several ranks in an epoch, and others by none.
    "padding": the ranks use some examples twice, so that all of them have equally many.
    "unshuffled": on one rank or on all of them, the examples come in the order of the data set.
    """
    # solution: name the cause
    return "order"
    # end of solution


def train(model, data, batch, epochs, rate, seed, done=0):
    """Train the model on all ranks; return the losses of all steps, and the weights after each epoch.

    All ranks call this, and `dist` is initialised. Results are the same on all ranks.
    model: a torch.nn.Module, which is changed. For x of shape (n, features) it returns a tensor of shape (n, 1). Its
    parameters are float64, and ranks begin with the same ones. It has no buffers.
    data: the data set, which all ranks can read. It has len(data) examples, 1 or more. data[i] is a pair (x, y) of
    float64 tensors of shape (features,) and (1,). To read an example takes longer than all else.
    batch: examples of a rank in a step, 1 or more.
    epochs: the number of epochs of the whole training, 1 or more. They are counted from 0.
    done: 0, or the number of epochs that were done before the training was interrupted. Then `model` has the weights
    after these epochs, and only the others are left.
    rate: the learning rate.
    seed: an int, 0 or more, the same on all ranks.

    The examples of an epoch have a random order, which is the same on all ranks. `seed`, the number of the epoch, and
    len(data) decide on it, and nothing else does. So a training that was interrupted goes on as if nothing had
    happened. The ranks share the examples of this order. In an epoch each of them is used once. But if the ranks would
    have different numbers of examples, they use some of them again: no more than it takes to have equally many, and
    none of them a third time before all have been used twice. A rank takes `batch` of its examples in a step; in the
    last step of an epoch there may be fewer. A rank reads only the examples that it uses. It starts no other process.

    The loss of an example is (model(x) - y) ** 2 / 2. The loss of a step is the mean over its examples on all ranks,
    before its update. The update subtracts rate times the gradient of this mean. Returned are two lists: for each step
    its loss, a float; and for each epoch the weights after it, a float64 tensor of all parameters in one dimension.

    A step makes two collective calls: DistributedDataParallel averages the gradient, and an all-reduce sums the loss.
    There are no others, but for a few that DistributedDataParallel makes at the beginning.
    """
    loader = DataLoader(data, batch, sampler=DistributedSampler(data, seed=seed))
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=rate)
    losses, weights = [], []
    for epoch in range(done, epochs):
        # solution: the sampler draws another order in each epoch
        # found:
        loader.sampler.set_epoch(epoch)
        # end of solution
        targets, hardest = [], (0.0, 0)
        for step, (x, y) in enumerate(loader):
            loss = ((ddp(x) - y) ** 2).mean() / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            targets += y.flatten().tolist()
            hardest = max(hardest, (loss.item(), step))
            total = loss.detach().clone()
            dist.all_reduce(total)
            losses.append(total.item() / dist.get_world_size())
        weights.append(parameters_to_vector(model.parameters()).detach())
        print(
            f"epoch {epoch}, rank {dist.get_rank()}: {len(targets)} examples, whose y add up to {sum(targets):.3f}; "
            f"the highest loss is {hardest[0]:.3f}, in step {hardest[1]}",
            flush=True,
        )
    return losses, weights
