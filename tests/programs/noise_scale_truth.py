"""The noise scale on ranks is that of one process which knows every rank's gradient.

`check(comm)` runs on virtual ranks and, as a program under mpirun, on real ones.
"""

import copy
import json

import torch
from torch import nn

from mpcourse.data_parallel import COMMUNICATORS, MultiNodeOptimizer, create_communicator
from mpcourse.large_batch import NoiseScale, RankNoise

STEPS, EXAMPLES = 5, 3


class Tied(nn.Module):
    """One weight in two places, whose gradient comes in two parts, and a frozen layer."""

    def __init__(self):
        super().__init__()
        self.first, self.frozen, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.last.weight = self.first.weight
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.last(torch.tanh(self.frozen(torch.tanh(self.first(x)))))


def made(comm, kind):
    torch.manual_seed(7)
    return Tied(), create_communicator(kind, comm)


def check(comm):
    """By communicator, by how much this rank's noise scale differs from that of one process, relatively."""
    return {kind: difference(comm, kind) for kind in COMMUNICATORS}


def difference(comm, kind):
    model, communicator = made(comm, kind)
    model.double()
    alone = copy.deepcopy(model)
    optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.1), communicator, model=model)
    own = torch.optim.SGD(alone.parameters(), 0.1)
    noise, want = RankNoise(communicator, model.parameters(), 0.8), NoiseScale(0.8)
    generator, off = torch.Generator().manual_seed(8), 0.0
    for _ in range(STEPS):
        x = torch.randn(comm.size, EXAMPLES, 6, dtype=torch.float64, generator=generator)
        optimizer.zero_grad()
        model(x[comm.rank]).square().mean().backward()
        optimizer.mean_gradients()
        found = noise.update(EXAMPLES)
        optimizer.step()
        squares = [square(alone, part) for part in x]
        big = square(alone, x.flatten(0, 1))
        own.step()
        want.update(sum(squares) / comm.size, big, EXAMPLES, EXAMPLES * comm.size)
        pairs = [(noise.scale.trace, want.trace), (noise.scale.gradient_square, want.gradient_square)]
        off = max([off, *(abs(f / w - 1) for f, w in pairs)])
        assert found == noise.scale.value
    return off


def square(model, x):
    model.zero_grad()
    model(x).square().mean().backward()
    return sum(p.grad.square().sum().item() for p in model.parameters() if p.grad is not None)


def steps(comm, kind, noise):
    """Do some steps, with the noise scale "measured", or "none" of it, or "a number" averaged in its place."""
    model, communicator = made(comm, kind)
    optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.1), communicator, model=model)
    measured = RankNoise(communicator, model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        model(torch.full((2, 6), 1.0 + comm.rank + step)).square().mean().backward()
        optimizer.mean_gradients()
        if noise == "measured":
            measured.update(2)
        else:
            measured._own = {}
        if noise == "a number":
            communicator.mean(1.0)
        optimizer.step()


def refused(comm):
    model, communicator = made(comm, "naive")
    noise = RankNoise(communicator, model.parameters())
    x = torch.ones(2, 6)
    said = []
    for wrong in (
        lambda: noise.update(2),
        lambda: (model(x).sum().backward(), model(x).sum().backward()),
    ):
        try:
            wrong()
        except RuntimeError as error:
            said.append(f"RuntimeError: {error}")
    return said


def alone(comm):
    model, communicator = made(comm, "naive")
    try:
        RankNoise(communicator, model.parameters())
    except ValueError as error:
        return f"ValueError: {error}"


if __name__ == "__main__":
    from mpi4py import MPI

    found = MPI.COMM_WORLD.gather(check(MPI.COMM_WORLD))
    if found:
        print(json.dumps(found))
