"""Models for e06_allreduce_gradients, in which each parameter is odd in its own way, and what a call does to them."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.sums import BASE

NAME = "allreduce_gradients"

Having = Callable[[int, int], bool]  # of rank and size


def _all(rank: int, size: int) -> bool:
    return True


def _none(rank: int, size: int) -> bool:
    return False


@dataclass(frozen=True)
class Kind:
    """A parameter. frozen: it needs no gradient. having: the ranks on which it has one. memory: "rows", or how else its
    numbers lie. twice: under a second name, too.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float64
    frozen: bool = False
    having: Having = _all
    memory: str = "rows"
    twice: bool = False


WEIGHT, BIAS = Kind("weight", (3, 2)), Kind("bias", (4,))
FROZEN = Kind("frozen", (2,), frozen=True, having=_none)
SCALE = Kind("scale", ())
TIED = Kind("tied", (2, 2), twice=True)
TURNED = Kind("turned", (5, 2), memory="columns")
KERNEL = Kind("kernel", (2, 3, 2, 2), memory="channels last")
SMALL = Kind("small", (7,), torch.float32)
SOME = Kind("some", (3,), having=lambda rank, size: size == 1 or rank != 1)
OTHERS = Kind("others", (4, 2), having=lambda rank, size: rank == size - 1, memory="columns")
NEVER = Kind("never", (2, 3), having=_none)
EVERY = (WEIGHT, NEVER, SMALL, SOME, FROZEN, SCALE, TIED, TURNED, KERNEL, OTHERS, BIAS)


@dataclass(frozen=True)
class State:
    """Of a model on one rank, by name: values of parameters and buffers, and gradients or None."""

    values: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray | None]


@dataclass(frozen=True)
class CallSeen:
    """What a call did on one rank. shared: two parameters whose gradients lie in the same memory afterwards."""

    before: State
    after: State
    returned: Any
    shared: tuple[str, str] | None


def program(kinds: Sequence[Kind], drawn: bool, seed: int = 0) -> Callable[[Answer, Any], CallSeen]:
    """A call for a model of such parameters after backward. drawn: random gradients, by seed; else powers of BASE."""

    def run(own: Answer, comm: Any) -> CallSeen:
        model = _model(kinds, comm.rank, comm.size, drawn, seed)
        before = _state(model, kinds)
        returned = own.call(NAME, comm, model)
        returned = returned if isinstance(returned, int | float | str | None) else type(returned).__name__
        return CallSeen(before, _state(model, kinds), returned, _shared(model, kinds))

    return run


def _model(kinds: Sequence[Kind], rank: int, size: int, drawn: bool, seed: int) -> nn.Module:
    random = np.random.default_rng([rank, size, seed])
    model, loss = nn.Module(), torch.zeros((), dtype=torch.float64)
    for i, kind in enumerate(kinds):
        p = nn.Parameter(_laid(np.full(kind.shape, i + rank / 8), kind), requires_grad=not kind.frozen)
        model.register_parameter(kind.name, p)
        if kind.twice:
            model.register_parameter(f"{kind.name}_again", p)
        numbers = random.standard_normal(kind.shape)
        if kind.having(rank, size):
            gradient = _laid(np.asarray(numbers) if drawn else np.full(kind.shape, float(BASE**rank)), kind)
            for _ in range(1 + kind.twice):  # each use adds its part
                loss = loss + (p * (gradient / (1 + kind.twice))).sum().double()
    model.register_buffer("running_mean", torch.full((3,), rank + 0.5))
    if loss.requires_grad:
        loss.backward()
    return model


def _laid(numbers: np.ndarray, kind: Kind) -> torch.Tensor:
    """A tensor of the kind's dtype, whose numbers lie in memory as it says."""
    x = torch.from_numpy(numbers).to(kind.dtype)
    if kind.memory == "columns":
        return x.t().contiguous().t()
    return x.contiguous(memory_format=torch.channels_last) if kind.memory == "channels last" else x


def _state(model: nn.Module, kinds: Sequence[Kind]) -> State:
    named = {kind.name: getattr(model, kind.name) for kind in kinds}
    values = {name: p.detach().numpy().copy() for name, p in [*named.items(), *model.named_buffers()]}
    gradients = {name: None if p.grad is None else p.grad.detach().numpy().copy() for name, p in named.items()}
    return State(values, gradients)


def _shared(model: nn.Module, kinds: Sequence[Kind]) -> tuple[str, str] | None:
    held = {kind.name: g for kind in kinds if (g := getattr(model, kind.name).grad) is not None}
    for (a, x), (b, y) in itertools.combinations(held.items(), 2):
        if np.shares_memory(x.detach().numpy(), y.detach().numpy()):
            return a, b
    return None


def mean(facts: Sequence[CallSeen], name: str) -> np.ndarray | None:
    """What parameter `name`'s gradient is to become."""
    total = total_of(facts, name)
    return None if total is None else total / len(facts)


def total_of(facts: Sequence[CallSeen], name: str) -> np.ndarray | None:
    """The sum of its gradients; None where no rank has one."""
    had = [g for f in facts if (g := f.before.gradients[name]) is not None]
    return np.sum(np.asarray(had, dtype=np.float64), axis=0) if had else None
