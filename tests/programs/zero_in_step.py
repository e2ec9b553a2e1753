"""Ranks that run different layers of a model with ZeRO.

`mpirun -np 3 python tests/programs/zero_in_step.py` prints what each rank says in each case; with "more steps" rank 0
takes a step that no other rank takes.
"""

import sys

import torch
from torch import nn

from mpcourse.zero import (
    OverlappedGradients,
    PrefetchedParameters,
    ShardedGradients,
    ShardedOptimizer,
    ShardedParameters,
)

STAGES = {
    each.__name__: each
    for each in (ShardedOptimizer, ShardedGradients, ShardedParameters, OverlappedGradients, PrefetchedParameters)
}
LAYERS = "first", "a", "b", "expert", "last"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        for name in LAYERS:
            setattr(self, name, nn.Linear(3, 3))

    def forward(self, x, order=LAYERS, dropped=""):
        for name in order:
            y = getattr(self, name)(x)
            x = x + 0 * y.detach() if name == dropped else y
        return x


def sgd(groups):
    return torch.optim.SGD(groups, 0.1)


# The arguments of rank 1, and those of all others.
PROGRAMS = {
    "another order": ({}, {"order": ("first", "b", "a", "expert", "last")}),
    "skips the expert": ({"order": ("first", "a", "b", "last")}, {}),
    "skips the last": ({"order": LAYERS[:-1]}, {}),
    "drops the expert's result": ({"dropped": "expert"}, {}),
}


def train(comm, kind, arguments=({}, {}), leave_out=(), batches=4):
    """Return the steps taken."""
    model, steps = Model(), 0
    optimizer = STAGES[kind](sgd, model, comm)
    for batch in range(1, batches + 1):
        optimizer.zero_grad()
        model(torch.ones(1, 3), **arguments[comm.rank != 1]).sum().backward()
        if batch not in leave_out:
            optimizer.step()
            steps += 1
    return steps


if __name__ == "__main__":
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    torch.set_num_threads(1)
    if sys.argv[1:] == ["more steps"]:
        train(world, "ShardedParameters", batches=3 - world.rank)
        sys.exit()
    said = []
    for kind in (ShardedParameters, PrefetchedParameters):
        for arguments in PROGRAMS.values():
            try:
                train(world, kind.__name__, arguments)
            except Exception as error:
                said.append(f"{world.rank}: {type(error).__name__}: {error}")
    everyone = world.gather(said)
    if everyone is not None:
        print("\n".join(sum(everyone, [])))
