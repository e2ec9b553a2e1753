"""Networks whose gradients e06_bucket_overlap averages, and what the mean must be."""

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

STEPS = 3
RATE = 0.1
EXAMPLES, WIDTH = 4, 4


class Chain(nn.Module):
    """Layers one after the other. The gradients of the last one are computed first."""

    def __init__(self, layers: int = 4, width: int = WIDTH) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor, rank: int) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Mixed(Chain):
    """A weight that is used twice, a frozen bias, a parameter without dimensions, one that is larger than a bucket."""

    def __init__(self) -> None:
        super().__init__(2)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.layers[0].bias.requires_grad_(False)
        self.wide = nn.Linear(WIDTH, 5 * WIDTH)

    def forward(self, x: torch.Tensor, rank: int) -> torch.Tensor:
        once = super().forward(x, rank)
        return self.wide(self.scale * super().forward(once, rank))


class Branches(Chain):
    """Two equal branches, which odd ranks compute in the opposite order; so their gradients come in that order."""

    def __init__(self) -> None:
        super().__init__(1)
        self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, rank: int) -> torch.Tensor:
        h = super().forward(x, rank)
        branches = (self.left, self.right) if rank % 2 == 0 else (self.right, self.left)
        parts = [torch.tanh(branch(h)) for branch in branches]
        return parts[0] * parts[1]


class Missing(Chain):
    """A layer that only even ranks use, and one that no rank uses."""

    def __init__(self) -> None:
        super().__init__(3)
        self.sometimes, self.never = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, rank: int) -> torch.Tensor:
        h = super().forward(x, rank)
        return h + torch.tanh(self.sometimes(x)) if rank % 2 == 0 else h


@dataclass(frozen=True)
class BucketCase:
    """make: the network. bucket: bytes of one, in layers of `width` units with bias. why: of an answer right so far."""

    make: Callable[[], nn.Module]
    what: str
    dtype: torch.dtype = torch.float64
    bucket: float = 1.0
    why: str = ""
    width: int = WIDTH

    @property
    def bucket_bytes(self) -> int:
        return int(self.bucket * (self.width + 1) * self.width * self.dtype.itemsize)

    def network(self) -> nn.Module:
        """The network, its parameters drawn from a fixed seed: so they are the same on all ranks."""
        return copy.deepcopy(self.drawn)

    @functools.cached_property
    def drawn(self) -> nn.Module:
        """That of which `network` makes copies; nobody changes it."""
        model = self.make().to(self.dtype)
        draw = np.random.default_rng(11)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.tensor(draw.uniform(-1, 1, p.shape)))
        return model

    def loss(self, model: nn.Module, rank: int, step: int) -> torch.Tensor:
        """The loss of a rank's own examples of a step."""
        x = np.random.default_rng([rank, step]).standard_normal((EXAMPLES, self.width))
        return model(torch.tensor(x, dtype=self.dtype), rank).square().sum()

    @functools.cached_property
    def buckets(self) -> list[list[str]]:
        """Names of the parameters of each bucket, by the rule of the exercise."""
        buckets: list[list[str]] = []
        room = 0
        for name, p in reversed(list(self.drawn.named_parameters())):
            nbytes = p.numel() * p.element_size()
            if not p.requires_grad:
                continue
            if not buckets or nbytes > room:
                buckets.append([])
                room = self.bucket_bytes
            buckets[-1].append(name)
            room -= nbytes
        return buckets


Grads = dict[str, np.ndarray | None]


def gradients(model: nn.Module) -> Grads:
    """A copy of each parameter's gradient, by name; None where a parameter has none."""
    return {name: None if p.grad is None else p.grad.detach().numpy().copy() for name, p in model.named_parameters()}


def descend(model: nn.Module) -> None:
    """A step of SGD, and no gradients after it."""
    with torch.no_grad():
        for p in model.parameters():
            if p.grad is not None and p.requires_grad:
                p.sub_(RATE * p.grad)
    model.zero_grad()


def by_rank(case: BucketCase, size: int) -> list[list[Grads]]:
    """Of each step, what each rank's own backward computes; every step is made with the right mean."""
    model, steps = case.network(), []
    for step in range(STEPS):
        each = []
        for rank in range(size):
            model.zero_grad()
            case.loss(model, rank, step).backward()
            each.append(gradients(model))
        steps.append(each)
        for name, p in model.named_parameters():
            p.grad = None if not p.requires_grad else torch.tensor(mean_of([own[name] for own in each], p))
        descend(model)
    return steps


def mean_of(own: Sequence[np.ndarray | None], like: torch.Tensor) -> np.ndarray:
    """The mean over ranks, with None as zeros."""
    rows = [np.zeros(like.shape) if row is None else row.astype(float) for row in own]
    return np.mean(rows, axis=0).astype(str(like.dtype)[6:])
