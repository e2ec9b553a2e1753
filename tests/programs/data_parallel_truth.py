"""Ranks that share each batch train as one process does on all of it: models, optimizers, communicators.

`check(comm, known)` runs on virtual ranks and, as a program under mpirun, on real ones. Each rank compares its own
model with one process's, so that a rank that errs is the one that says so. What one process finds is `known` to all
ranks and communicators: nobody but it trains that. A program reads it from the file that is its argument.
"""

import copy
import functools
import itertools
import json
import sys

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.data_parallel import (
    COMMUNICATORS,
    MultiNodeOptimizer,
    convert_batch_norm,
    create_communicator,
    fuse_weight_gradients,
)

STEPS, BATCH, CLASSES = 3, 12, 5  # buckets are laid out after the first step, momentum counts from the second on
BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-4}


class Tied(nn.Module):
    """Two layers with one weight, and a frozen one between them."""

    def __init__(self):
        super().__init__()
        self.first, self.frozen, self.last = nn.Linear(7, 7), nn.Linear(7, 7), nn.Linear(7, 7)
        self.last.weight = self.first.weight
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.last(torch.tanh(self.frozen(torch.tanh(self.first(x)))))[:, :CLASSES]


# What comes before a normalisation has no bias, and neither has attention: the loss would not depend on it, its
# gradient would be rounding errors alone, and Adam makes steps of full length of those.


class Block(nn.Module):
    """A transformer block over a short sequence, and a classifier."""

    def __init__(self):
        super().__init__()
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, bias=False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.block(x).mean(1))


def mlp():
    return nn.Sequential(nn.Linear(7, 13), nn.ReLU(), nn.Linear(13, CLASSES))


def conv():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 9, bias=False),
        nn.BatchNorm1d(9),
        nn.Linear(9, CLASSES),
    )  # fmt: skip


MODELS = {"mlp": (mlp, (7,)), "tied": (Tied, (7,)), "conv": (conv, (1, 6, 6)), "block": (Block, (3, 8))}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, 0.01),
}


def train(model, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@functools.cache
def batches_of(name, dtype):
    generator = torch.Generator().manual_seed(11)
    return [
        (
            torch.randn(BATCH, *MODELS[name][1], generator=generator, dtype=dtype),
            torch.randint(CLASSES, (BATCH,), generator=generator),
        )
        for _ in range(STEPS)
    ]


def of_one_process():
    """Return the values that each model begins with, and those after training, without any communicator."""
    known = {}
    for name, dtype, optimizer in itertools.product(MODELS, BOUNDS, OPTIMIZERS):
        torch.manual_seed(5)
        whole = MODELS[name][0]().to(dtype)
        first = copy.deepcopy(whole.state_dict())
        train(whole, OPTIMIZERS[optimizer](whole.parameters()), batches_of(name, dtype))
        known[name, dtype, optimizer] = first, whole.state_dict()
    return known


def distance(comm, known, communicator, name, dtype, optimizer, fused):
    """How far this rank's model is from one process's, of which both began with rank 0's values."""
    first, others = known[name, dtype, optimizer]
    torch.manual_seed(100 + comm.rank)
    model = MODELS[name][0]().to(dtype)
    if comm.rank == 0:
        model.load_state_dict(first)
    if name == "tied":
        assert not comm.rank or not torch.equal(model.frozen.weight, first["frozen.weight"])  # it comes from rank 0
    convert_batch_norm(model, communicator)
    if fused:
        assert fuse_weight_gradients(model, 0)
    trained_by = MultiNodeOptimizer(OPTIMIZERS[optimizer](model.parameters()), communicator, model=model)
    edge = [BATCH * r // comm.size for r in range(comm.size + 1)]
    mine = slice(edge[comm.rank], edge[comm.rank + 1])
    train(model, trained_by, [(x[mine], y[mine]) for x, y in batches_of(name, dtype)])
    own = model.state_dict()
    return max(float((own[key].double() - others[key].double()).abs().max()) for key in others)


def check(comm, known, kinds=(*COMMUNICATORS, "fused")):
    """Return the cases that were compared, with what exceeded its bound.

    "fused" is bucketed, with layers that write their gradients into the buckets.
    """
    found = {}
    for kind in kinds:
        nodes = 2 if comm.size % 2 == 0 else 1
        fused = kind == "fused"
        communicator = create_communicator("bucketed" if fused else kind, comm, ranks_per_node=nodes)
        for name in MODELS:
            for dtype, bound in BOUNDS.items():
                for optimizer in OPTIMIZERS:
                    if optimizer != "momentum" and kind not in ("flat", "bucketed", "fused"):
                        continue  # they differ in how a sum is made, of which an optimizer knows nothing
                    off = distance(comm, known, communicator, name, dtype, optimizer, fused)
                    found[f"{kind} {name} {dtype} {optimizer}"] = None if off <= bound else off
    return found


if __name__ == "__main__":
    from mpi4py import MPI

    torch.set_num_threads(1)
    found = MPI.COMM_WORLD.gather(check(MPI.COMM_WORLD, torch.load(sys.argv[1])))
    if found:
        json.dump(found, sys.stdout)
