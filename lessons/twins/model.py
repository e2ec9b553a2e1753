"""What all twins train: a small MLP, made of a seed, on batches that every rank can make for itself."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS, BATCH, WIDTH, HIDDEN, KINDS = 3, 16, 12, 32, 5


class MLP(nn.Module):
    """(batch, WIDTH) -> (batch, KINDS) by three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (
            nn.Linear(WIDTH, HIDDEN),
            nn.Linear(HIDDEN, WIDTH),
            nn.Linear(WIDTH, KINDS),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(torch.tanh(self.second(F.gelu(self.first(x)))))


def model() -> MLP:
    """The same parameters on every rank, float64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return MLP().double()


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole batch of a step: inputs (BATCH, WIDTH), float64, and classes (BATCH,), int64."""
    draw = torch.Generator().manual_seed(step + 1)
    x = torch.randn(BATCH, WIDTH, generator=draw, dtype=torch.float64)
    return x, torch.randint(KINDS, (BATCH,), generator=draw)


def share(step: int, rank: int, ranks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of a step's batch."""
    x, target = batch(step)
    return x.chunk(ranks)[rank], target.chunk(ranks)[rank]


def adam(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def one_process() -> dict[str, torch.Tensor]:
    """The parameters after STEPS steps in one process: what every way to train over ranks has to arrive at."""
    plain = model()
    optimizer = adam(plain.parameters())
    for step in range(STEPS):
        x, target = batch(step)
        optimizer.zero_grad()
        F.cross_entropy(plain(x), target).backward()
        optimizer.step()
    return {name: p.detach() for name, p in plain.named_parameters()}
