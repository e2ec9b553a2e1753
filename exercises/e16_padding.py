"""Exercise e16: the training whose loss ends higher on four ranks.

The program below trains a small language model. Its sequences have different lengths, so a micro-batch is padded. One
process takes the 32 sequences of a step as one micro-batch, and its loss falls as it should. Four ranks share the
same 32 sequences: each rank has two micro-batches of four. The learning rate is the same, and so are the first
weights. With four ranks the loss ends higher, and so does the loss of held-out sequences. Three other seeds show the
same. The more the lengths of the sequences differ, the larger is the difference.

Evidence, in evidence/e16_padding/: `loss.csv`, the loss of each step in one process (expected) and on four ranks (this
run); `one.log` and `ranks.log`, what these two runs printed: in every twentieth step, they print a line for each
micro-batch. `mpirun -np 4 python exercises/evidence/e16_padding/run.py` shows it again; with `-np 1` it is the one
process.

First name the cause in `diagnose`. Then mend `train`.

Check it with `mpcourse check e16_padding`. Stuck? `mpcourse hint e16_padding`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch
import torch.nn.functional as F
from mpi4py import MPI

PADDING = -100  # the target where there is nothing to predict: F.cross_entropy leaves it out


def diagnose():
    """Return the name of the cause, one of these.

    "data": the four ranks do not train on the same sequences as the one process.
    "learning rate": the learning rate is too high for four ranks.
    "padding": padding has a loss, too, which is part of the mean.
    "rounding": the gradients lose digits on their way from rank to rank.
    "tokens": a token counts more in one micro-batch than in another.
    "weights": the four ranks have different weights.
    """
    raise NotImplementedError("e16_padding: name the cause")


def padded(sequences):
    """Return ids and targets of a micro-batch, int64 of shape (sequences, longest).

    The target of an id is the id after it. At the end of a sequence, and in its padding, the target is PADDING.
    """
    ids = torch.zeros(len(sequences), max(map(len, sequences)), dtype=torch.int64)
    targets = torch.full_like(ids, PADDING)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence
        targets[row, : len(sequence) - 1] = sequence[1:]
    return ids, targets


def train(comm, model, steps, rate):
    """Train the model by gradient descent; return the losses of the steps, a list of floats, the same on all ranks.

    comm: an mpi4py communicator.
    model: a torch.nn.Module, the same on all ranks. For ids of shape (sequences, length) it returns logits of shape
    (sequences, length, classes). Its parameters are float64, and the logits depend on all of them. `train` changes
    them, in the same way on all ranks.
    steps: for each step, the list of this rank's micro-batches. All ranks have the same number of steps, 1 or more,
    and the same number of micro-batches in a step. A micro-batch is a list of 1 or more sequences, and a sequence is
    a tensor of 1 or more ids, int64 of shape (length,). The ids are 1 or more.
    rate: the learning rate.

    A token is an id with one before it in its sequence, so a sequence of one id has no token. The loss of a token is
    the cross-entropy of the logits at the id before it (F.cross_entropy). The loss of a step is the mean over all
    tokens of all ranks and micro-batches in this step, before its update. The update subtracts rate times the
    gradient of this mean. In each step there is a token on some rank; a micro-batch, or all of a rank, may have none.

    A rank runs its own micro-batches only. It runs one after the other, each forward and then backward, so that
    memory holds the activations of one micro-batch. `train` makes at most two collective calls for each step. A rank
    sends in them no more than one Allreduce sends for an array of one number for each parameter, and 64 numbers
    besides.
    """
    parameters, losses = list(model.parameters()), []
    for number, step in enumerate(steps):
        model.zero_grad()
        total = 0.0
        for sequences in step:
            ids, targets = padded(sequences)
            tokens = int((targets != PADDING).sum())
            logits = model(ids).flatten(0, 1)
            loss = F.cross_entropy(logits, targets.flatten(), ignore_index=PADDING, reduction="sum")
            mean = loss / max(tokens, 1)  # there may be no token
            if number % 20 == 0:
                print(f"step {number}, rank {comm.rank}: {tokens} tokens, loss {mean.item():.6f}", flush=True)
            mean = mean / len(step)
            mean.backward()
            total += mean.item()
        flat = np.concatenate([*(p.grad.numpy().ravel() for p in parameters), [total]])
        comm.Allreduce(MPI.IN_PLACE, flat)
        flat /= comm.size
        at = 0
        with torch.no_grad():
            for p in parameters:
                p -= rate * torch.from_numpy(flat[at : at + p.numel()]).reshape(p.shape)
                at += p.numel()
        losses.append(float(flat[at]))
        if comm.rank == 0:
            print(f"step {number}: loss {losses[-1]:.6f}", flush=True)
    return losses
