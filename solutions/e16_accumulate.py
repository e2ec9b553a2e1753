"""Exercise e16: the accumulation that saves no time.

The program below trains a network on two machines. Each machine has its own micro-batches of 8 examples. At first, the
network was updated after each micro-batch, and most of the time went into messages. So the program now accumulates the
gradients of 8 micro-batches for an update. The losses are right: one process that has the micro-batches of both
machines prints the same ones. But an epoch takes as long as before, although it has an eighth of the updates. Two ranks
on one machine show the same, and the evidence is from them.

Evidence, in evidence/e16_accumulate/: `ranks.log`, what two ranks printed, without and with accumulation; `one.log`,
what one process printed; `rank0.json.gz` and `rank1.json.gz`, traces by torch.profiler of one update of 8 micro-batches
(open them in https://ui.perfetto.dev); `trace.txt`, what `mpcourse trace` says of them. `mpirun -np 2 python
exercises/evidence/e16_accumulate/run.py` makes logs and traces again; with `-np 1`, it is the one process.

First name the cause in `diagnose`. Then mend `train`, which must not send more than it has to.

Check it with `mpcourse check e16_accumulate`. Stuck? `mpcourse hint e16_accumulate`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import time

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def diagnose():
    """Return the name of the cause, one of these.

    "buckets": the gradients of a backward pass travel in too many small messages.
    "buffers": DDP sends the buffers of the model to all ranks in each forward pass.
    "loading": a processor often has nothing to do, because its next micro-batch is not there yet.
    "micro-batches": the ranks average gradients more often than an update needs.
    "scale": the losses of micro-batches are divided by the wrong number, so training needs more updates.
    "slow rank": one rank computes longer than the other, which waits for it.
    """
    # solution: name the cause
    return "micro-batches"
    # end of solution


def backward(ddp, x, y, count):
    """Add a micro-batch's part to the gradients of an update of `count` micro-batches; return its loss."""
    loss = cross_entropy(ddp(x), y)
    (loss / count).backward()
    return loss.detach()


def train(model, batches, accumulate, epochs, rate):
    """Train the model on all ranks with accumulated gradients; return the mean loss of each epoch, a list of floats.

    All ranks call this, and `dist` is initialised. On all ranks, losses and parameters are the same at the end.
    model: a torch.nn.Module, which is changed. It has no buffers, and its gradients take less than 1 MB. Ranks begin
        with the same parameters. Some may be frozen (requires_grad is False); the others are used in each micro-batch.
    batches: this rank's micro-batches, a list of (x, y). All ranks have equally many, and these have equally many
        examples. The loss of a micro-batch is cross_entropy(model(x), y), before its update.
    accumulate: micro-batches of each rank in an update, 1 or more. The last update of an epoch may have fewer.

    An epoch goes through all micro-batches once, in their order. An update is a step of SGD with momentum 0.9, whose
    gradient is the mean over all examples of its micro-batches on all ranks. It takes one all-reduce of as many numbers
    as the gradients have. The loss of an epoch takes one more, of one number.
    """
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=rate, momentum=0.9)
    losses = []
    for epoch in range(epochs):
        began, total = time.perf_counter(), torch.zeros((), dtype=torch.float64)
        for i, (x, y) in enumerate(batches):
            place = i % accumulate  # in its update
            count = min(accumulate, place + len(batches) - i)
            last = place == count - 1
            # solution: gradients of the other ranks are needed once in an update
            # found: total += backward(ddp, x, y, count)
            if last:
                total += backward(ddp, x, y, count)
            else:
                with ddp.no_sync():  # around the forward pass, too: there DDP decides
                    total += backward(ddp, x, y, count)
            # end of solution
            if last:
                optimizer.step()
                optimizer.zero_grad()
        dist.all_reduce(total)
        losses.append(total.item() / len(batches) / dist.get_world_size())
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {losses[-1]:.4f}, {time.perf_counter() - began:.2f} s")
    return losses
