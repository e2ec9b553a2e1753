"""An MLP over two ranks, of which rank 0 has the first and the last part, beside one process.

`mpirun -np 2 python tests/programs/chain_list_truth.py` prints True where both are equal after four steps.
"""

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.model_parallel import MultiNodeChainList

_DRAW = torch.Generator().manual_seed(1)
X = torch.randn(7, 4, dtype=torch.float64, generator=_DRAW)
LABELS = torch.randint(3, (7,), generator=_DRAW)


def made(*modules):
    """Modules with parameters that are the same on all ranks."""
    draw = torch.Generator().manual_seed(0)
    for module in modules:
        module.double()
        for p in module.parameters():
            p.data.copy_(torch.randn(p.shape, generator=draw, dtype=p.dtype) / 3)
    return modules


def trained(modules, steps, lr=0.1):
    return torch.optim.SGD([p for m in modules for p in m.parameters()], lr, momentum=0.9), range(steps)


def held(modules):
    return [p.detach().clone() for m in modules for p in m.parameters()]


def equal(found, want):
    return len(found) == len(want) and all(
        torch.allclose(a, b, rtol=1e-12, atol=1e-13) for a, b in zip(found, want, strict=True)
    )


class Layers:
    """An MLP in three parts, of which ranks 0, 1 and 0 again have one each: ChainerMN's first example."""

    @staticmethod
    def parts():
        return made(nn.Linear(4, 6), nn.Sequential(nn.Tanh(), nn.Linear(6, 5)), nn.Linear(5, 3))

    @classmethod
    def whole(cls, steps):
        parts = cls.parts()
        optimizer, times = trained(parts, steps)
        for _ in times:
            optimizer.zero_grad()
            F.cross_entropy(nn.Sequential(*parts)(X), LABELS).backward()
            optimizer.step()
        return held(parts)

    @classmethod
    def program(cls, comm, steps):
        first, second, third = cls.parts()
        model = MultiNodeChainList(comm)
        if comm.rank == 0:
            model.add_link(first, rank_in=None, rank_out=1)
            model.add_link(third, rank_in=1, rank_out=None)
        else:
            model.add_link(second, rank_in=0, rank_out=0)
        optimizer, times = trained([model], steps)
        for _ in times:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X), LABELS) if comm.rank == 0 else model()
            loss.backward()
            optimizer.step()
        return held([model])


if __name__ == "__main__":
    from mpi4py import MPI

    torch.manual_seed(MPI.COMM_WORLD.rank)
    parts = MPI.COMM_WORLD.gather(Layers.program(MPI.COMM_WORLD, 4))
    if parts:
        print(equal([*parts[0][:2], *parts[1], *parts[0][2:]], Layers.whole(4)))
