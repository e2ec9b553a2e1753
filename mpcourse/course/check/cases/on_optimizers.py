"""Trainings for e06_multi_node_optimizer: what each rank does and sees, and what one process would get."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch._dynamo  # what torch.optim imports at its first use, which takes seconds: here, before the clock starts
from torch import nn

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import attribute
from mpcourse.course.check.wrong import Wrong

NAME = "MultiNodeOptimizer"
BATCH = 4  # examples a rank
SLOWER = {1: 0.25, 2: 2.0}  # before these steps the learning rate is multiplied
STEPS = 3

Values = dict[str, np.ndarray]

# The first optimizer imports much of torch. Now, before time counts that a rank may compute.
torch.optim.Adam([nn.Parameter(torch.zeros(1))]).step()


@dataclass(frozen=True)
class Training:
    """adam: the optimizer; else SGD with momentum. decay: its weight decay. missing: whether gradients are None on some
    ranks, and one on all. groups: two of them, the second with a frozen parameter, too. turned: whether one parameter
    lies in memory in another order than its shape says. single: whether all are float32. seed: of all numbers.
    """

    what: str
    adam: bool = False
    decay: float = 0.0
    missing: bool = False
    groups: bool = False
    turned: bool = False
    single: bool = False
    seed: int = 0


class Model(nn.Module):
    """Two layers; `side` only counts where it is asked for, `idle` nowhere, `fixed` is frozen. All float64."""

    def __init__(self, seed: int, training: Training) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 1)
        self.side, self.idle = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(2))
        self.fixed = nn.Parameter(torch.zeros(4), requires_grad=False)
        if training.turned:
            self.first.weight = nn.Parameter(torch.zeros(3, 4).t())
        if not training.single:
            self.double()
        random = np.random.default_rng([seed, training.seed])
        for p in self.parameters():
            p.data.copy_(torch.from_numpy(random.standard_normal(p.shape)))
        if not training.groups:  # then no optimizer holds it, and nobody makes it alike on all ranks
            self.fixed.data.copy_(torch.arange(1, 5) / 4)

    def forward(self, x: torch.Tensor, side: bool) -> torch.Tensor:
        hidden = torch.tanh(self.first(x)) * self.fixed
        return self.second(hidden + self.side.sin() if side else hidden)


@dataclass
class TrainingSeen:
    """On one rank. start, made: parameters before and after the optimizer was made. rates: learning rates, before and
    after. left: parameters with a gradient after zero_grad, by step; zeros: those of them where it is zeros. had: the
    gradients before each step, after: those after it. values: parameters after it.
    """

    start: Values
    made: Values
    rates: tuple[list[float], list[float]]
    left: list[list[str]]
    zeros: list[list[str]]
    had: list[dict[str, np.ndarray | None]]
    after: list[dict[str, np.ndarray | None]]
    values: list[Values]


def inner_of(model: Model, training: Training) -> torch.optim.Optimizer:
    """The optimizer to be wrapped."""
    own = {p: name for name, p in model.named_parameters() if training.missing or name not in ("side", "idle")}
    late = [p for p, name in own.items() if name.startswith("second")] + [model.fixed]
    groups: list[dict[str, Any]] = [{"params": [p for p, name in own.items() if name != "fixed"]}]
    if training.groups:
        groups = [{"params": [p for p in own if not any(p is q for q in late)]}, {"params": late}]
    if training.adam:
        return torch.optim.Adam(groups, lr=0.05, weight_decay=training.decay)
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=training.decay)


def loss_of(model: Model, training: Training, step: int, rank: int, size: int) -> torch.Tensor:
    """A rank's own: the mean over its examples."""
    random = np.random.default_rng([step, rank, training.seed])
    x, y = torch.from_numpy(random.standard_normal((BATCH, 3))), torch.from_numpy(random.standard_normal((BATCH, 1)))
    side = training.missing and rank == (step + 1) % size and step != 2  # in one step nobody has it
    return nn.functional.mse_loss(model(x, side), y)


def held(inner: torch.optim.Optimizer, model: Model) -> dict[str, nn.Parameter]:
    """The parameters that the optimizer holds, by name."""
    known = {id(p) for group in inner.param_groups for p in group["params"]}
    return {name: p for name, p in model.named_parameters() if id(p) in known}


def values(parameters: dict[str, nn.Parameter]) -> Values:
    return {name: p.detach().numpy().copy() for name, p in parameters.items()}


def gradients(parameters: dict[str, nn.Parameter]) -> dict[str, np.ndarray | None]:
    return {name: None if p.grad is None else p.grad.detach().numpy().copy() for name, p in parameters.items()}


def program(training: Training, steps: int = STEPS) -> Callable[[Answer, Any], TrainingSeen]:
    """So many steps of it, by the learner's optimizer, on one rank."""

    def run(own: Answer, comm: Any) -> TrainingSeen:
        model = Model(comm.rank, training)
        inner = inner_of(model, training)
        mine = held(inner, model)
        start, rates = values(mine), _rates(inner)
        optimizer = own.call(NAME, inner, comm)
        seen = TrainingSeen(start, values(mine), (rates, _rates(inner)), [], [], [], [], [])
        for step in range(steps):
            own.run(_method(optimizer, "zero_grad"), "optimizer.zero_grad")
            seen.left.append([name for name, p in mine.items() if p.grad is not None])
            seen.zeros.append([name for name, p in mine.items() if p.grad is not None and not p.grad.any()])
            loss_of(model, training, step, comm.rank, comm.size).backward()
            seen.had.append(gradients(mine))
            _slow(optimizer, step)
            own.run(_method(optimizer, "step"), "optimizer.step")
            seen.after.append(gradients(mine))
            seen.values.append(values(mine))
        return seen

    return run


def zeroing_alone(own: Answer, comm: Any) -> None:
    """One rank calls zero_grad once more than the others."""
    training = Training("zero_grad on one rank")
    model = Model(comm.rank, training)
    optimizer = own.call(NAME, inner_of(model, training), comm)
    if comm.rank == comm.size - 1:
        own.run(_method(optimizer, "zero_grad"), "optimizer.zero_grad")


def _rates(inner: torch.optim.Optimizer) -> list[float]:
    return [float(group["lr"]) for group in inner.param_groups]


def _method(optimizer: Any, name: str) -> Any:
    own = attribute(optimizer, name, f"what {NAME} makes", f"A training loop calls optimizer.{name}() in every step.")
    if not callable(own):
        raise Wrong(
            f"optimizer.{name} to be a method", f"a {type(own).__name__}", f"Is it a property? {name}() is called."
        )
    return own


def _slow(optimizer: Any, step: int) -> None:
    """What a scheduler does."""
    why = "A scheduler sets the learning rate in optimizer.param_groups: hand on the wrapped optimizer's own list."
    groups = attribute(optimizer, "param_groups", f"what {NAME} makes", why)
    if not isinstance(groups, list) or not groups or not all(isinstance(group, dict) for group in groups):
        got = "a method: is @property missing?" if callable(groups) else f"a {type(groups).__name__}"
        raise Wrong("optimizer.param_groups to be the wrapped optimizer's list of dicts", got, why)
    if step in SLOWER:
        for group in groups:
            group["lr"] *= SLOWER[step]


@dataclass(frozen=True)
class Way:
    """How gradients are put together, and what else is done: the right way, or one that somebody may take for it.

    mean: of all ranks' gradients, None among them, and the rank that asks: what the optimizer is given there. average:
    of all parameters after each step. slower: whether changes of the learning rate count. steps: how many the wrapped
    optimizer makes each time. only: the number of groups whose gradients are averaged; None: all. forgets: whether what
    the wrapped optimizer keeps of earlier steps is lost. apart: whether ranks come to differ; else one model stands for
    all of them.
    """

    mean: Callable[[list[np.ndarray | None], int], np.ndarray | None]
    average: bool = False
    slower: bool = True
    steps: int = 1
    only: int | None = None
    forgets: bool = False
    apart: bool = False


def sum_over(grads: Sequence[np.ndarray | None]) -> np.ndarray | None:
    there = [g for g in grads if g is not None]
    return np.sum(there, axis=0) if there else None


def right(grads: list[np.ndarray | None], rank: int) -> np.ndarray | None:
    """The mean over ranks, where a missing gradient counts as zeros."""
    total = sum_over(grads)
    return None if total is None else total / len(grads)


def trained(training: Training, size: int, way: Way, steps: int = STEPS) -> list[list[Values]]:
    """Parameters after each step, by step and rank, if ranks did it that way from rank 0's parameters on."""
    models = [Model(0, training) for _ in range(size if way.apart else 1)]
    inners = [inner_of(model, training) for model in models]
    mine = [held(inner, model) for inner, model in zip(inners, models, strict=True)]
    history = []
    for step in range(steps):
        own = []
        for rank in range(size):
            at = rank if way.apart else 0
            inners[at].zero_grad()
            loss_of(models[at], training, step, rank, size).backward()
            own.append(gradients(mine[at]))
        for rank in range(len(models)):
            averaged = {id(p) for group in inners[rank].param_groups[: way.only] for p in group["params"]}
            for name, p in mine[rank].items():
                g = way.mean([grads[name] for grads in own], rank) if id(p) in averaged else own[rank][name]
                p.grad = None if g is None else torch.from_numpy(np.broadcast_to(g, p.shape).copy())
            for group in inners[rank].param_groups:
                group["lr"] *= SLOWER.get(step, 1.0) if way.slower else 1.0
            if way.forgets:
                inners[rank].state.clear()
            for _ in range(way.steps):
                inners[rank].step()
        if way.average:
            for name in mine[0]:
                average = torch.stack([parameters[name].data for parameters in mine]).mean(0)
                for parameters in mine:
                    parameters[name].data.copy_(average)
        after = [values(parameters) for parameters in mine]
        history.append(after if way.apart else after * size)
    return history
