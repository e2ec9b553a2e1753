"""What e09_lars is asked: the steps of the formulas, by each weight's own norms, with a state that can be saved."""

import dataclasses
import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch._dynamo  # what torch.optim imports at its first use, which takes seconds: here, before the clock starts

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.calls import ROUNDED, Called, one_by_one, programs
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import Test, always, demand, filled
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage

NAME = "LARS"
Rows = list[torch.Tensor]

# -- inputs --


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
    """what: how messages call it. groups: of the optimizer. hint: why an answer that was right until then stumbles.

    stop: after how many steps its state is saved and another optimizer goes on with it; 0: never.
    """

    what: str
    groups: list[Group]
    hint: str = ""
    stop: int = 0

    steps = property(lambda self: len(self.groups[0].lr))
    start = property(lambda self: [w for group in self.groups for w in group.start])

    def gradients(self, step: int) -> list[torch.Tensor | None]:
        return [g for group in self.groups for g in group.gradients[step]]


def _drawn(shapes: Sequence[tuple[int, ...]], lr: list[float], seed: int, **options: float) -> Group:
    """Make a group with random parameters of these shapes, and random gradients for each step."""
    generator = torch.Generator().manual_seed(seed)
    rows = [[torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes] for _ in (None, *lr)]
    return Group(rows[0], [list(row) for row in rows[1:]], lr, **options)


def _row(*numbers: float) -> torch.Tensor:
    """Make a weight of one row."""
    return torch.tensor([numbers], dtype=torch.float64)


def _trainings(seed: int) -> list[Training]:
    """List trainings, from one step of one weight to all that the task names. seed: of the random ones."""
    matrix, bias = (3, 4), (5,)
    rates = [_drawn([matrix, bias], [0.5, 2.0, 2.0, 0.1], seed + 5, momentum=0.9, weight_decay=0.1)]
    missing = _drawn([matrix, bias, (2, 2)], [0.5, 1.0, 2.0], seed + 6, momentum=0.9, weight_decay=0.1)
    missing.gradients[0][0] = missing.gradients[1][2] = missing.gradients[2][1] = None
    zeros = Group(
        [torch.zeros(2, 3, dtype=torch.float64), _row(3.0, 4.0), torch.zeros(2, 2, dtype=torch.float64)],
        [[torch.ones(2, 3, dtype=torch.float64), _row(0.0, 0.0), torch.zeros(2, 2, dtype=torch.float64)]] * 2,
        [0.5, 0.5],
    )
    alike = _drawn([matrix, matrix, bias, bias], [0.5, 1.0, 0.2], seed + 9, momentum=0.9, weight_decay=0.1)
    still = Group(  # gradients of zeros, where weight decay alone has a direction; then some
        [_row(3.0, 4.0), _row(1.0, 2.0, 2.0)],
        [[_row(0.0, 0.0), _row(0.0, 0.0, 0.0)], [_row(1.0, 2.0), _row(0.0, 0.0, 0.0)]],
        [0.5, 0.5], momentum=0.9, weight_decay=0.1, coefficient=0.02,
    )  # fmt: skip
    small = Group(  # gradients so small, and so large, that trust is far above 1, and far below
        [_row(30.0, 40.0), _row(0.3, 0.4), _row(3e-5, 4e-5)],
        [[_row(0.006, 0.008), _row(300.0, 400.0), _row(6e-6, 8e-6)]] * 2,
        [0.001, 0.002], momentum=0.5, coefficient=0.02,
    )  # fmt: skip
    groups = [
        _drawn([matrix, bias], [0.5, 0.1, 2.0], seed + 7, momentum=0.9, weight_decay=0.1, coefficient=0.02),
        _drawn([(2, 2), (2,)], [3.0, 0.7, 0.2], seed + 8, momentum=0.5, weight_decay=0.0, coefficient=0.3),
    ]
    return [
        Training("one step, w = [[3, 4]], g = [[6, 8]]", [Group([_row(3.0, 4.0)], [[_row(6.0, 8.0)]], [2.0])]),
        Training("one step of a 3x4 weight", [_drawn([matrix], [0.5], seed + 1)]),
        Training("one step with weight decay", [_drawn([matrix], [0.5], seed + 2, weight_decay=0.3)]),
        Training("one step of two weights", [_drawn([matrix, (2, 5), (3, 2, 2)], [0.5], seed + 3, weight_decay=0.1)]),
        Training("one step of a weight and biases", [_drawn([matrix, bias, ()], [0.5], seed + 4, weight_decay=0.1)]),
        Training("four steps with momentum, and a learning rate that changes", rates),
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
        Training(
            "four steps with momentum, saved and loaded after two", rates,
            "Velocities belong into self.state[p], which state_dict saves. In a dict of one's own, or an attribute, "
            "they are lost when training is stopped and goes on, and every step after that is another one.",
            stop=2,
        ),
    ]  # fmt: skip


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    every = _trainings(drawing().getrandbits(30))
    one_by_one(answer, [functools.partial(_one, training=training, every=every) for training in every])


def _one(answer: Answer, training: Training, every: list[Training]) -> None:
    try:
        got = _run(answer, training)
    except (RuntimeError, AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        leaf = "leaf Variable" in str(error)
        if not leaf and (isinstance(error, RuntimeError) or not training.hint):
            raise
        got = error
    demand(TESTS, Facts(answer, (training,), got, every))


def _run(answer: Answer, training: Training) -> Any:
    """Return gradients and parameters after each step; the type of what was made, if that is no optimizer."""
    held = [torch.nn.Parameter(w.clone()) for w in training.start]
    optimizer, history = _made(answer, training, held), []
    if not isinstance(optimizer, torch.optim.Optimizer):
        return type(optimizer)
    for step in range(training.steps):
        if step and step == training.stop:
            held = [torch.nn.Parameter(p.detach().clone()) for p in held]
            state, optimizer = optimizer.state_dict(), _made(answer, training, held)
            optimizer.load_state_dict(state)
        for p, g in zip(held, training.gradients(step), strict=True):
            p.grad = None if g is None else g.clone()
        for own, group in zip(optimizer.param_groups, training.groups, strict=True):
            own["lr"] = group.lr[step]
        answer.run(optimizer.step, "optimizer.step")
        history.append([_copy(p.grad) for p in held] + [_copy(p) for p in held])
    return history


def _made(answer: Answer, training: Training, held: Sequence[torch.Tensor]) -> Any:
    """Return the learner's optimizer over these parameters."""
    parameters = iter(held)
    groups = [
        {"params": [next(parameters) for _ in g.start], "lr": g.lr[0], "momentum": g.momentum}
        | {"weight_decay": g.weight_decay, "trust_coefficient": g.coefficient}
        for g in training.groups
    ]
    return answer.call(NAME, groups, *DEFAULT.lr, changes=(groups,))


def _copy(tensor: torch.Tensor | None) -> torch.Tensor:
    return torch.empty(0) if tensor is None else tensor.detach().clone()


# -- facts --


@dataclass(frozen=True)
class Facts(Called):
    """A training: gradients and parameters after each step, or an error, or the type of what is no optimizer.

    every: trainings; most tell misconceptions apart.
    """

    every: list[Training]

    call = staticmethod(_run)
    right = staticmethod(lambda training: trained(training, Way()))
    same = staticmethod(lambda got, want: _difference(got, want) is None)
    probes = property(lambda self: [(training,) for training in self.every if not training.stop])
    training = property(lambda self: self.given[0])
    step = property(lambda self: self.difference[0])
    which = property(lambda self: self.difference[1] - len(self.training.start))  # below 0: a gradient
    place = property(lambda self: self.difference[2])
    tensor = property(lambda self: self.got[self.step][self.difference[1]])
    start = property(lambda self: self.training.start[self.which])
    is_nan = property(lambda self: any(w.isnan().any() for w in self.got[-1]))
    retyped = property(lambda self: _type(self.tensor) != _type(self.start))

    @functools.cached_property
    def difference(self) -> Any:
        return _difference(self.got, self.want)

    @property
    def shorter(self) -> str:
        """By the largest change of each parameter in each training; or by the parameters themselves."""
        ratios = []
        for (training,), got in self.seen:
            n = 0 if training.hint else len(training.start)  # hints are for numbers that may be of any size
            want = self.right(training)
            for w, a, b in zip(training.start[:n], got[-1][n:], want[-1][n:], strict=False):
                i = (b - w).abs().argmax()
                ratios.append((((a - w) / (b - w)).flatten()[i], (a / b).flatten()[i]))
        return next(filter(None, (shorter_dtype(row, np.ones(len(row))) for row in zip(*ratios, strict=True))), "")

    # What sentences show.

    number = property(lambda self: self.tensor[self.place].item())
    wanted = property(lambda self: self.want[self.step][self.which + len(self.training.start)][self.place].item())
    at = property(lambda self: f"{tuple(self.start.shape)}, at {list(self.place)} after step {self.step + 1}")
    where = property(lambda self: f"{'bias' if self.start.dim() < 2 else 'weight'} number {self.which + 1}, {self.at}")


def _difference(got: list[Rows], want: list[Rows]) -> tuple[int, int, tuple[int, ...]] | None:
    """Return where they differ first: step, tensor, and place, which is () where its shape or dtype is another."""
    for step, rows in enumerate(zip(got, want, strict=True)):
        for which, (a, b) in enumerate(zip(*rows, strict=True)):
            if _type(a) != _type(b):
                return step, which, ()
            if (unequal := ~torch.isclose(a, b, rtol=1e-9, atol=1e-11)).any():
                return step, which, tuple(unequal.nonzero()[0].tolist())
    return None


def _type(tensor: torch.Tensor) -> tuple:
    return tuple(tensor.shape), tensor.dtype


# -- facts: where the formulas lead, the right ones and others --


def _norm(t: torch.Tensor) -> float:
    return t.square().sum().sqrt().item()


def _ratio(above: float, below: float) -> float:
    return above / below if above > 0 and below > 0 else 1.0


def _trust(x: Any, norm: Callable[[torch.Tensor], float] = _norm) -> float:
    return _ratio(x.c * norm(x.w), norm(x.g) + x.wd * norm(x.w)) if x.w.dim() > 1 else 1.0


def _update(x: Any, trust: Any) -> tuple[torch.Tensor, torch.Tensor]:
    v = x.m * x.v + x.lr * trust * x.d
    return v, v


@dataclass(frozen=True)
class Way:
    """A way to make steps; by default the right one.

    trust: of one parameter in one step, x: its w, g, v, d = g + wd * w; lr, m, wd, c, the options of its group; the w
    and g of all that have gradients; the numbers of its group, its own in it, and the group's last one; and a memory.
    update: of x and its trust; the new v, and what is subtracted from w.
    options: whose options a parameter gets, from the first group, its own, and what the optimizer has by default.
    place: where the velocity is kept, by the number of the group, that of the parameter in it, and the parameter.
    """

    trust: Callable[[Any], Any] = _trust
    update: Callable[[Any, Any], tuple[torch.Tensor, torch.Tensor]] = _update
    options: Callable[[Group, Group, Group], Group] = lambda first, own, default: own
    place: Callable[[int, int, torch.Tensor], Hashable] = lambda group, which, w: (group, which)


def trained(training: Training, way: Way) -> list[Rows]:
    """Return the gradients, and all parameters, after each step."""
    values = [[*group.start] for group in training.groups]
    velocities: dict[Hashable, torch.Tensor] = {}
    memories: dict[tuple[int, int], dict] = defaultdict(dict)
    history = []
    for step in range(training.steps):
        gradients = training.gradients(step)
        pairs = [(w, g) for w, g in zip(itertools.chain(*values), gradients, strict=True) if g is not None]
        for number, (group, ws) in enumerate(zip(training.groups, values, strict=True)):
            o = way.options(training.groups[0], group, DEFAULT)
            for i, (w, g) in enumerate(zip(ws, group.gradients[step], strict=True)):
                if g is None:
                    continue
                v = velocities.get(place := way.place(number, i, w))
                x = SimpleNamespace(
                    w=w, g=g, v=torch.zeros_like(w) if v is None or v.shape != w.shape else v, d=g + o.weight_decay * w,
                    lr=o.lr[step % len(o.lr)], m=o.momentum, wd=o.weight_decay, c=o.coefficient, all=pairs,
                    group=number, which=i, last=len(ws) - 1, memory=memories[number, i],
                )  # fmt: skip
                velocities[place], change = way.update(x, way.trust(x))
                ws[i] = w - change
        history.append([*map(_copy, gradients), *itertools.chain(*values)])
    return history


# -- what is said: misconceptions, each with the way to make steps that it leads to --


def _of_weights(trust: Callable[[Any], Any]) -> Way:
    """Return the way with this trust for weights, and 1 for biases."""
    return Way(trust=lambda x: trust(x) if x.w.dim() > 1 else 1.0)


def _by_norm(norm: Callable[[torch.Tensor], float]) -> Way:
    return Way(trust=lambda x: _trust(x, norm))


def _along(dim: int) -> Way:
    """Return the way with a trust for each row, or column."""
    norm = functools.partial(torch.linalg.vector_norm, dim=dim, keepdim=True)
    return _of_weights(lambda x: x.c * norm(x.w) / (norm(x.g) + x.wd * norm(x.w)))


def _of_all(x: Any) -> float:
    """Compute the trust from the norms of all parameters together."""
    w, g = (sum(_norm(t) ** 2 for t in ts) ** 0.5 for ts in zip(*x.all, strict=True))
    return _ratio(x.c * w, g + x.wd * w)


def _plus(number: float, above: bool, guarded: bool) -> Way:
    """Return the way with a number added below the line, and above it, too.

    guarded: but not where the formula gives no trust.
    """

    def trust(x: Any) -> float:
        w, g = _norm(x.w), _norm(x.g)
        return x.c * (w + number * above) / (g + x.wd * w + number) if _inside(x) or not guarded else 1.0

    return _of_weights(trust)


def _inside(x: Any) -> bool:
    """Return whether the formula gives the trust, and not a rule for biases or zeros."""
    return x.w.dim() > 1 and _norm(x.w) > 0 and _norm(x.g) + x.wd * _norm(x.w) > 0


def _moved(velocity: Callable[[Any, Any], Any], change: Callable[[Any, Any, Any], Any] = lambda x, t, v: v) -> Way:
    """Return the way with this velocity, by x and the trust, and this change of w, by the velocity, too."""
    return Way(update=lambda x, t: (v := velocity(x, t), change(x, t, v)))


def _only(moves: Callable[[Any], bool]) -> Way:
    """Return the way in which only some parameters move."""
    return Way(update=lambda x, t: _update(x, t) if moves(x) else (x.v, 0 * x.w))


OWN = "Each weight has a velocity of its own. There {}: keep it in self.state[p], under p itself."
WAYS: dict[str, Way | list[Way]] = {
    OWN.format("weights of one shape share one"): Way(place=lambda group, i, w: w.shape),
    OWN.format("all parameters share one"): Way(place=lambda group, i, w: 0),
    OWN.format("all parameters of a group share one"): Way(place=lambda group, i, w: group),
    "The parameters are as they were. w = w - v makes a new tensor; w -= v, or w.sub_(v), writes into the parameter.": (
        _only(lambda x: False)
    ),
    "w moves by the velocity of the step before there: first the new v, then w -= v.": (
        _moved(lambda x, t: _update(x, t)[0], lambda x, t, v: x.v)
    ),
    "Only the first parameter of a group moves there: does the loop end too early, by a return or a break in it?": [
        _only(lambda x: x.which == 0),
        _only(lambda x: x.which == x.group == 0),
    ],
    "Only the last parameter of a group moves there: code below the loop runs once, not for each of them.": (
        _only(lambda x: x.which == x.last)
    ),
    "Only the first of self.param_groups moves there: go through all of them.": (_only(lambda x: x.group == 0)),
    "The trust follows the norms in each step. There it stays that of the first step.": (
        Way(trust=lambda x: x.memory.setdefault("trust", _trust(x)))
    ),
    "That goes uphill: v is subtracted from w.": (_moved(lambda x, t: _update(x, t)[0], lambda x, t, v: -v)),
    "That is SGD: each weight's step is multiplied by its trust, too.": Way(trust=lambda x: 1.0),
    "trust_coefficient is missing in the trust.": Way(trust=lambda x: _trust(x) / x.c if _inside(x) else 1.0),
    "The trust is upside down: ||w|| is above the line, so that large weights make large steps.": _of_weights(
        lambda x: _ratio(x.c * (_norm(x.g) + x.wd * _norm(x.w)), _norm(x.w))
    ),
    "Each weight has a trust of its own, from its own norms. Those are the norms of all parameters together.": (
        _of_weights(_of_all)
    ),
    "Biases have a trust of 1: parameters with fewer than two dimensions are left out of the formula.": Way(
        trust=lambda x: _ratio(x.c * _norm(x.w), _norm(x.g) + x.wd * _norm(x.w))
    ),
    "Biases move, too: their trust is 1, which is not to leave them out.": _only(lambda x: x.w.dim() > 1),
    "Weight decay belongs below the line, too: ||g|| + weight_decay * ||w||.": _of_weights(
        lambda x: _ratio(x.c * _norm(x.w), _norm(x.g))
    ),
    "Below the line is a sum of two norms, ||g|| + weight_decay * ||w||, and not the norm of a sum.": _of_weights(
        lambda x: _ratio(x.c * _norm(x.w), _norm(x.d))
    ),
    "Each weight has one trust, from the norm of all its numbers. There each row, or column, has one of its own.": [
        *map(_along, (0, 1, -1))
    ],
    "||w|| is the root of the sum of squares. torch.linalg.norm(w, 2) of a matrix is its largest singular value.": (
        _by_norm(lambda t: torch.linalg.matrix_norm(t, 2).max().item())
    ),
    "Weights of zeros never move with a trust of 0: where ||w|| is 0, trust is 1.": _of_weights(
        lambda x: _trust(x) if _inside(x) else 0.0
    ),
    "A number is added below the line there, and small norms are drowned in it. The formula has none: ask for 0 "
    "instead, where trust is 1.": [
        _plus(10.0**-k, above, guarded)
        for k in (16, *range(3, 13))
        for above in (False, True)
        for guarded in (False, True)
    ],
    "A parameter without dimensions has fewer than two of them, too: its trust is 1.": Way(
        trust=lambda x: _ratio(x.c * _norm(x.w), _norm(x.g) + x.wd * _norm(x.w)) if x.w.dim() != 1 else 1.0
    ),
    "Biases decay, too: the formula for v holds for every parameter, and only the trust of biases is another one.": (
        _moved(lambda x, t: x.m * x.v + x.lr * t * (x.d if x.w.dim() > 1 else x.g))
    ),
    "The norms are without their roots there: ||w|| is the root of the sum of squares.": _by_norm(
        lambda t: _norm(t) ** 2
    ),
    "||w|| is the root of the sum of squares. That is the sum of absolute values.": _by_norm(
        lambda t: t.abs().sum().item()
    ),
    "||w|| is the root of the sum of squares, over all numbers of w. That is the largest number alone.": _by_norm(
        lambda t: t.abs().max().item()
    ),
    "The trust is capped at 1. The formula may give more: gradients that are small beside their weights ask for it.": (
        Way(trust=lambda x: min(1.0, _trust(x)))
    ),
    "The trust is capped. The formula may give more: gradients that are small beside their weights ask for it.": (
        Way(trust=lambda x: min(10.0, _trust(x)))
    ),
    "The trust has a least value. The formula may give less: large gradients beside small weights ask for it.": (
        Way(trust=lambda x: max(1e-3, _trust(x)))
    ),
    "Where the gradient is 0, trust is what the formula gives, and not 1: weight_decay * ||w|| is below the line.": (
        Way(trust=lambda x: _trust(x) if _norm(x.g) > 0 else 1.0)
    ),
    "A gradient of zeros is a gradient: velocity and weight decay move the weight as in any other step.": _only(
        lambda x: _norm(x.g) > 0
    ),
    "The weight decay is in the trust, but not in the step: v grows by lr * trust * (g + weight_decay * w).": _moved(
        lambda x, t: x.m * x.v + x.lr * t * x.g
    ),
    "The trust multiplies the weight decay, too: lr * trust * (g + weight_decay * w), with both in the bracket.": (
        _moved(lambda x, t: x.m * x.v + x.lr * (t * x.g + x.wd * x.w))
    ),
    "That is decoupled weight decay, as in AdamW. Here it is added to the gradient: g + weight_decay * w.": _moved(
        lambda x, t: x.m * x.v + x.lr * t * x.g, lambda x, t, v: v + x.lr * x.wd * x.w
    ),
    "The weight decay has the wrong sign: it is added to the gradient, and the step goes against both.": _moved(
        lambda x, t: x.m * x.v + x.lr * t * (x.g - x.wd * x.w)
    ),
    "The learning rate is inside of v: v = momentum * v + lr * trust * (...), then w -= v. Outside, as in torch's SGD, "
    "a new rate would change earlier steps, too.": _moved(lambda x, t: x.m * x.v + t * x.d, lambda x, t, v: x.lr * v),
    "The trust is inside of v, as the learning rate is. There each step's trust multiplies all earlier steps again.": (
        _moved(lambda x, t: x.m * x.v + x.lr * x.d, lambda x, t, v: t * v)
    ),
    "lr and trust are inside of v. There the velocity has bare gradients, and this step's lr and trust multiply all "
    "of it.": _moved(lambda x, t: x.m * x.v + x.d, lambda x, t, v: x.lr * t * v),
    'A scheduler changes lr between steps: read group["lr"] in each. There it is what the optimizer was made with.': (
        Way(options=lambda first, own, default: dataclasses.replace(own, lr=default.lr))
    ),
    "lr is missing: v = momentum * v + lr * trust * (g + weight_decay * w).": _moved(lambda x, t: x.m * x.v + t * x.d),
    "There is no momentum: is v kept in self.state[p] from step to step, and multiplied by momentum?": _moved(
        lambda x, t: x.lr * t * x.d
    ),
    "Old velocity counts in full there: it is multiplied by momentum in each step.": _moved(
        lambda x, t: x.v + x.lr * t * x.d
    ),
    "The new step counts in full, without a factor of (1 - momentum).": _moved(
        lambda x, t: x.m * x.v + (1 - x.m) * x.lr * t * x.d
    ),
    "That is Nesterov's momentum, which looks one step ahead. Here w -= v, and no more.": (
        _moved(lambda x, t: _update(x, t)[0], lambda x, t, v: x.m * v + x.lr * t * x.d)
    ),
    "All groups get the first group's options there. Take them from the group that a parameter is in.": (
        Way(options=lambda first, own, default: first)
    ),
    "self.defaults has what is not said of a group. Read the group's own: there is what was said, and what a scheduler "
    "changes.": Way(options=lambda first, own, default: default),
}
PROGRAMS = {
    why: [functools.partial(trained, way=way) for way in (ways if isinstance(ways, list) else [ways])]
    for why, ways in WAYS.items()
}
WHYS = [
    programs(PROGRAMS),
    {
        "NaN is 0 / 0. {training.hint}": lambda f: f.is_nan and f.training.hint,
        "NaN is 0 / 0, or infinity minus infinity.": lambda f: f.is_nan,
        "That is right to 7 digits. A tensor made without a dtype is float32, and rounds; torch.zeros_like(p) has the "
        "dtype of p.": lambda f: f.shorter == "float32",
    },
    ROUNDED,
    programs(PROGRAMS, lambda f: f.seen[:1]),
    {
        "{training.hint}": lambda f: f.training.hint,
        "Work the first step out by hand for w = [[3, 4]] and g = [[6, 8]]: ||w|| is 5, ||g|| is 10, and what is "
        "subtracted is [0.06, 0.08] for lr 2 and a coefficient of 0.01.": always,
    },
]
WHYS_ERROR = {
    "Keep @torch.no_grad() above step: an update in place of a parameter is nothing for autograd to record.": (
        lambda f: isinstance(f.got, RuntimeError)
    ),
    "Keep in self.state[p] what torch.optim's own optimizers keep there: tensors and numbers, by name.": (
        lambda f: f.training.stop
    ),
    "{training.hint}": always,
}
TESTS = [
    Test(
        "no optimizer",
        lambda f: isinstance(f.got, type),
        "an optimizer of torch",
        "a {got.__name__}",
        "Keep the class line: class LARS(torch.optim.Optimizer), and the super().__init__ in it.",
    ),
    Test("an error", lambda f: f.failed, "{training.what}: no error", "{shown}", WHYS_ERROR),
    Test(
        "changed gradient",
        lambda f: f.difference and f.which < 0,
        "gradients that step() leaves alone ({training.what})",
        "a changed .grad",
        "g += ... and g.mul_(...) write into w.grad itself, which others may still need: g + decay * w is new.",
    ),
    Test(
        "another shape or dtype",
        lambda f: f.difference and f.retyped,
        lambda f: filled("shape {}, {} after step() ({{training.what}})".format(*_type(f.start)), f),
        lambda f: "shape {}, {}".format(*_type(f.tensor)),
        "w -= v and w.copy_(...) write numbers into the parameter, which keeps its shape and dtype.",
    ),
    Test(
        "lost velocity",
        lambda f: f.difference and f.training.stop,
        "{wanted:.12g}, as without a stop ({training.what})",
        "{number:.12g}, after state_dict and load_state_dict",
        "{training.hint}",
    ),
    Test("value", lambda f: f.difference, "{wanted:.12g} as {where} ({training.what})", "{number:.12g}", WHYS),
]
