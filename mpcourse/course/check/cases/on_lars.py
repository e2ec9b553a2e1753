"""Trainings for e09_lars: what an optimizer is given, and where the right formulas, or others, lead."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import torch
import torch._dynamo  # what torch.optim imports at its first use, which takes seconds: here, before the clock starts

Rows = list[torch.Tensor]


@dataclass(frozen=True)
class Group:
    """Parameters with options of their own. start: their values. gradients: by step, then by parameter; None: none."""

    start: Rows
    gradients: list[list[torch.Tensor | None]]
    lr: list[float]  # by step
    momentum: float = 0.0
    weight_decay: float = 0.0
    coefficient: float = 0.01


DEFAULT = Group([], [], [0.3], momentum=0.9, coefficient=0.001)  # what a group gets that has no options of its own


@dataclass(frozen=True)
class Training:
    """what: how messages call it. groups: of the optimizer. hint: why an answer that was right until then stumbles."""

    what: str
    groups: list[Group]
    hint: str = ""

    @property
    def steps(self) -> int:
        return len(self.groups[0].lr)


def drawn(shapes: Sequence[tuple[int, ...]], lr: list[float], seed: int, **options: float) -> Group:
    """A group with random parameters of these shapes, and random gradients for each step."""
    generator = torch.Generator().manual_seed(seed)

    def draw() -> Rows:
        return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]

    return Group(draw(), [list(draw()) for _ in lr], lr, **options)


def row(*numbers: float) -> torch.Tensor:
    """A weight of one row."""
    return torch.tensor([numbers], dtype=torch.float64)


def trainings(seed: int) -> list[Training]:
    """From one step of one weight to all that the task names. seed: of those that are random."""
    matrix, bias = (3, 4), (5,)
    missing = drawn([matrix, bias, (2, 2)], [0.5, 1.0, 2.0], seed + 6, momentum=0.9, weight_decay=0.1)
    missing.gradients[0][0] = missing.gradients[1][2] = missing.gradients[2][1] = None
    zeros = Group(
        [torch.zeros(2, 3, dtype=torch.float64), row(3.0, 4.0), torch.zeros(2, 2, dtype=torch.float64)],
        [[torch.ones(2, 3, dtype=torch.float64), row(0.0, 0.0), torch.zeros(2, 2, dtype=torch.float64)]] * 2,
        [0.5, 0.5],
    )
    alike = drawn([matrix, matrix, bias, bias], [0.5, 1.0, 0.2], seed + 9, momentum=0.9, weight_decay=0.1)
    still = Group(  # gradients of zeros, where weight decay alone has a direction; then some
        [row(3.0, 4.0), row(1.0, 2.0, 2.0)],
        [[row(0.0, 0.0), row(0.0, 0.0, 0.0)], [row(1.0, 2.0), row(0.0, 0.0, 0.0)]],
        [0.5, 0.5], momentum=0.9, weight_decay=0.1, coefficient=0.02,
    )  # fmt: skip
    small = Group(  # gradients so small, and so large, that trust is far above 1, and far below
        [row(30.0, 40.0), row(0.3, 0.4), row(3e-5, 4e-5)],
        [[row(0.006, 0.008), row(300.0, 400.0), row(6e-6, 8e-6)]] * 2,
        [0.001, 0.002], momentum=0.5, coefficient=0.02,
    )  # fmt: skip
    groups = [
        drawn([matrix, bias], [0.5, 0.1, 2.0], seed + 7, momentum=0.9, weight_decay=0.1, coefficient=0.02),
        drawn([(2, 2), (2,)], [3.0, 0.7, 0.2], seed + 8, momentum=0.5, weight_decay=0.0, coefficient=0.3),
    ]
    return [
        Training("one step, w = [[3, 4]], g = [[6, 8]]", [Group([row(3.0, 4.0)], [[row(6.0, 8.0)]], [2.0])]),
        Training("one step of a 3x4 weight", [drawn([matrix], [0.5], seed + 1)]),
        Training("one step with weight decay", [drawn([matrix], [0.5], seed + 2, weight_decay=0.3)]),
        Training("one step of two weights", [drawn([matrix, (2, 5), (3, 2, 2)], [0.5], seed + 3, weight_decay=0.1)]),
        Training("one step of a weight and biases", [drawn([matrix, bias, ()], [0.5], seed + 4, weight_decay=0.1)]),
        Training(
            "four steps with momentum, and a learning rate that changes",
            [drawn([matrix, bias], [0.5, 2.0, 2.0, 0.1], seed + 5, momentum=0.9, weight_decay=0.1)],
        ),
        Training("three steps of two weights of one shape, and of two biases", [alike]),
        Training(
            "gradients far smaller, and far larger, than the weights", [small],
            "The formula holds for norms of any size: is there a threshold other than 0, or a number added below "
            "the line?",
        ),
        Training(
            "gradients of zeros, with weight decay", [still],
            "Where ||g|| is 0 the formula holds as elsewhere, for weight_decay * ||w|| is below the line, too: trust "
            "is 1 only where the whole sum below the line is 0, or ||w||.",
        ),
        Training(
            "gradients that are None in some steps", [missing],
            "A parameter whose .grad is None is left alone in that step, velocity and all: go on with the next one.",
        ),
        Training(
            "weights of zeros, and gradients of zeros", [zeros],
            "trust is 1 where ||w|| is 0, or the sum below the line is: ask before you divide.",
        ),
        Training(
            "two groups with options of their own", groups,
            "Take lr, momentum, weight_decay and trust_coefficient from the group that a parameter is in.",
        ),
    ]  # fmt: skip


@dataclass(frozen=True)
class Given:
    """What a formula may look at. all_w, all_g: of all parameters that have gradients in this step.

    group, which, last: the numbers of the group, of the parameter in it, and of the group's last one. memory: what is
    kept of this parameter from step to step.
    """

    w: torch.Tensor
    g: torch.Tensor
    v: torch.Tensor
    lr: float
    m: float
    wd: float
    c: float
    all_w: Rows = field(default_factory=list)
    all_g: Rows = field(default_factory=list)
    group: int = 0
    which: int = 0
    last: int = 0
    memory: dict = field(default_factory=dict)


Norm = Callable[[torch.Tensor], float]


def euclid(t: torch.Tensor) -> float:
    return t.square().sum().sqrt().item()


def ratio(above: float, below: float) -> float:
    return above / below if above > 0 and below > 0 else 1.0


def right_trust(x: Given, norm: Norm = euclid) -> float:
    return ratio(x.c * norm(x.w), norm(x.g) + x.wd * norm(x.w)) if x.w.dim() > 1 else 1.0


Update = Callable[[Given, float], tuple[torch.Tensor, torch.Tensor]]


def right_update(x: Given, trust: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The new velocity, and what is subtracted from w."""
    v = x.m * x.v + x.lr * trust * (x.g + x.wd * x.w)
    return v, v


@dataclass(frozen=True)
class Way:
    """A way to make steps; as it stands, the right one.

    options: whose options a parameter gets, from the first group, its own, and what the optimizer has by default.
    place: where the velocity is kept, by the number of the group, that of the parameter in it, and the parameter.
    """

    trust: Callable[[Given], float] = right_trust
    update: Update = right_update
    options: Callable[[Group, Group, Group], Group] = lambda first, own, default: own
    place: Callable[[int, int, torch.Tensor], Hashable] = lambda group, i, w: (group, i)


def trained(training: Training, way: Way) -> list[Rows]:
    """All parameters, group by group, after each step."""
    values = [[w.clone() for w in group.start] for group in training.groups]
    velocities: dict[Hashable, torch.Tensor] = {}
    memories: dict[tuple[int, int], dict] = {}
    history = []
    for step in range(training.steps):
        there = [
            (ws[i].clone(), g)
            for group, ws in zip(training.groups, values, strict=True)
            for i, g in enumerate(group.gradients[step])
            if g is not None
        ]
        for number, (group, ws) in enumerate(zip(training.groups, values, strict=True)):
            o = way.options(training.groups[0], group, DEFAULT)
            for i, g in enumerate(group.gradients[step]):
                if g is None:
                    continue
                place = way.place(number, i, ws[i])
                v = velocities.get(place)
                v = torch.zeros_like(ws[i]) if v is None or v.shape != ws[i].shape else v
                options = (o.lr[step % len(o.lr)], o.momentum, o.weight_decay, o.coefficient)
                x = Given(ws[i], g, v, *options, [w for w, _ in there], [g for _, g in there], number, i, len(ws) - 1,
                          memories.setdefault((number, i), {}))  # fmt: skip
                velocities[place], change = way.update(x, way.trust(x))
                ws[i] = ws[i] - change
        history.append([w for ws in values for w in ws])
    return history
