"""Exercise e16: the pipeline whose loss ends a little higher.

The program below trains a small language model as a pipeline: each rank has some of its layers. Three ranks do the same
as one process, which has all layers: the first weights, the examples, the micro-batches and the learning rate are the
same. The training on three ranks runs without an error, and its loss falls. But it ends a little higher:

    loss of held-out examples           1 process    3 ranks
    in the pipeline, after training     2.3240       2.4439
    in one process, from checkpoints    2.3240       2.5326

For the second line, each rank saved its layers after the training. Then one process loaded them into a new model.

Evidence, in evidence/e16_pipeline/: `loss.csv`, the loss of each step in one process (expected) and on three ranks
(this run); `one.log` and `ranks.log`, what these two runs printed: in every fortieth step, the norms of weights and
gradient of each layer, before the update. `mpirun -np 3 python exercises/evidence/e16_pipeline/run.py` shows it again;
with `-np 1` it is the one process.

First name the cause in `diagnose`. Then mend `train`.

Check it with `mpcourse check e16_pipeline`. Stuck? `mpcourse hint e16_pipeline`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch
import torch.nn.functional as F
from torch import nn


def diagnose():
    """Return the name of the cause, one of these.

    "initial weights": the three ranks begin with other weights than the one process.
    "learning rate": the learning rate is too high for some of the ranks, or too low.
    "message order": a rank takes the message of one micro-batch for that of another.
    "micro-batches": the mean over the micro-batches of a step is wrong.
    "stale weights": a micro-batch runs forward before an update and backward after it, with other weights.
    "tied weights": a weight that two layers have in common is updated differently on two ranks.
    """
    # solution: name the cause
    return "tied weights"
    # end of solution


class Block(nn.Linear):
    """A layer between embedding and head."""

    def forward(self, x):
        return x + torch.tanh(super().forward(x))


class Model(nn.Module):
    """Predicts for each id of a sequence the id after it."""

    def __init__(self, ids, width, blocks):
        super().__init__()
        self.embedding = nn.Embedding(ids, width)
        self.blocks = nn.ModuleList(Block(width, width) for _ in range(blocks))
        self.head = nn.Linear(width, ids, bias=False)
        self.head.weight = self.embedding.weight


class Stage(nn.Module):
    """The layers of this rank: some of the blocks, the embedding on the first rank, and the head on the last one."""

    def __init__(self, comm, model):
        super().__init__()
        self.comm, self.first, self.last = comm, comm.rank == 0, comm.rank == comm.size - 1
        self.width, n = model.embedding.embedding_dim, len(model.blocks)
        self.layers = nn.ModuleDict()
        if self.first:
            self.layers["embedding"] = model.embedding
        for i in range(comm.rank * n // comm.size, (comm.rank + 1) * n // comm.size):
            self.layers[f"block {i}"] = model.blocks[i]
        if self.last:
            self.layers["head"] = model.head

    def forward(self, ids):
        """Run a micro-batch through these layers; return what came in and what comes out, the loss on the last rank."""
        if self.first:
            x = given = ids[:, :-1]
        else:
            given = torch.empty(*ids[:, 1:].shape, self.width, dtype=torch.float64)
            self.comm.Recv(given.numpy(), source=self.comm.rank - 1)
            x = given.requires_grad_()
        for layer in self.layers.values():
            x = layer(x)
        if self.last:
            return given, F.cross_entropy(x.flatten(0, 1), ids[:, 1:].flatten())
        self.comm.Send(x.detach().numpy(), dest=self.comm.rank + 1)
        return given, x

    def backward(self, given, x, parts):
        """Run a micro-batch back, and add its share to the gradients. parts: the micro-batches of a step."""
        if self.last:
            (x / parts).backward()
        else:
            gradient = torch.empty_like(x)
            self.comm.Recv(gradient.numpy(), source=self.comm.rank + 1)
            x.backward(gradient)
        if not self.first:
            self.comm.Send(given.grad.numpy(), dest=self.comm.rank - 1)

    def report(self, step):
        """Print the norms of weights and gradient of each layer."""
        for name, layer in self.layers.items():
            weights, gradient = norm(layer.parameters()), norm(p.grad for p in layer.parameters())
            text = f"weights of norm {weights:.5f}, gradient of norm {gradient:.5f}"
            print(f"step {step}, rank {self.comm.rank}: {name}, {text}", flush=True)


def norm(tensors):
    """Return the norm of all numbers in some tensors; a frozen layer has None for a gradient."""
    return sum(float((t.detach() ** 2).sum()) for t in tensors if t is not None) ** 0.5


def train(comm, model, steps, rate, momentum):
    """Train the model as a pipeline; return the losses of the steps, a list of floats, on the last rank.

    comm: an mpi4py communicator.
    model: a Model, with the same weights on all ranks. Its parameters are float64, and it has at least as many blocks
    as there are ranks. The embedding may be frozen: then its weight has requires_grad = False, and stays as it is.
    steps: for each step, the list of its micro-batches, 1 or more, the same on all ranks. A micro-batch is a tensor of
    ids, int64 of shape (sequences, length), with a length of 2 or more. All micro-batches of a step have the same
    shape.
    rate, momentum: those of torch.optim.SGD, which updates the weights.

    Of n blocks, rank r has those from r * n // size to (r + 1) * n // size - 1. The first rank has the embedding
    besides, and the last one the head. One rank alone has all layers.

    The loss of a step is the mean of the cross-entropy over all predictions of all its micro-batches, before its
    update. The losses, and the parameters of a rank's layers after the training, are those of one process that trains
    the model in the same steps, up to rounding. `train` changes the layers of `model` itself. A parameter that layers
    of two ranks have in common has the same bits on both.

    A rank sends no more in a step than the program does now, but for one number for each element of a parameter that
    it has in common with another rank, and 512 bytes. Besides these messages, it may make one collective call in a
    step, in which only ranks take part that have such a parameter. Before the first step, it may make three
    collective calls.
    """
    stage = Stage(comm, model)
    optimizer = torch.optim.SGD(stage.parameters(), lr=rate, momentum=momentum)
    losses = []
    for step, parts in enumerate(steps):
        optimizer.zero_grad()
        runs = [stage(ids) for ids in parts]
        for given, x in runs:
            stage.backward(given, x, len(parts))
        # solution: the first and the last rank add up their gradients of the weight that both of them have
        # found:
        weight = model.embedding.weight
        if (stage.first or stage.last) and comm.size > 1 and weight.requires_grad:
            other, theirs = comm.size - 1 - comm.rank, torch.empty_like(weight.grad)
            comm.Sendrecv(weight.grad.numpy(), other, recvbuf=theirs.numpy(), source=other)
            weight.grad += theirs
        # end of solution
        if step % 40 == 0:
            stage.report(step)
        optimizer.step()
        if stage.last:
            losses.append(sum(x.item() for _, x in runs) / len(parts))
            print(f"step {step}: loss {losses[-1]:.6f}", flush=True)
    return losses if stage.last else None
