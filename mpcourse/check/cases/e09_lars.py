"""What e09_lars is asked: the steps of the formulas, by each weight's own norms, with a state that can be saved."""

import functools
import random
from typing import Any

import torch

from mpcourse.check.answer import Answer
from mpcourse.check.cases.on_calls import one_by_one
from mpcourse.check.cases.on_lars import (
    DEFAULT,
    Given,
    Rows,
    Training,
    Way,
    euclid,
    ratio,
    right_trust,
    right_update,
    trained,
    trainings,
)
from mpcourse.check.logbook import HasLogbook
from mpcourse.check.wrong import Wrong, short

NAME = "LARS"
RIGHT = Way()


def check(answer: Answer, comm: HasLogbook) -> None:
    """Every rank may call this; ranks do not talk."""
    every = trainings(random.SystemRandom().getrandbits(30))
    one_by_one(answer, [functools.partial(_one, training=training, every=every) for training in every])
    _goes_on(answer, every[5])


def _made(answer: Answer, training: Training, start: Rows | None = None) -> tuple[Any, list[torch.nn.Parameter]]:
    """The learner's optimizer over new parameters, and these. start: their values, if not the training's."""
    values = iter(start or [w for group in training.groups for w in group.start])
    held: list[list[torch.nn.Parameter]] = [
        [torch.nn.Parameter(next(values).clone()) for _ in group.start] for group in training.groups
    ]
    groups = [
        {"params": ps, "lr": g.lr[0], "momentum": g.momentum, "weight_decay": g.weight_decay}
        | {"trust_coefficient": g.coefficient}
        for ps, g in zip(held, training.groups, strict=True)
    ]
    optimizer = answer.call(NAME, groups, *DEFAULT.lr, changes=(groups,))
    if not isinstance(optimizer, torch.optim.Optimizer):
        why = "Keep the class line: class LARS(torch.optim.Optimizer), and the super().__init__ in it."
        raise Wrong("an optimizer of torch", f"a {type(optimizer).__name__}", why)
    return optimizer, [p for ps in held for p in ps]


def _step(answer: Answer, optimizer: Any, held: list[torch.nn.Parameter], training: Training, step: int) -> Rows:
    """Make a step; the parameters after it."""
    gradients = [g for group in training.groups for g in group.gradients[step]]
    for p, g in zip(held, gradients, strict=True):
        p.grad = None if g is None else g.clone()
    for own, group in zip(optimizer.param_groups, training.groups, strict=True):
        own["lr"] = group.lr[step]
    answer.run(optimizer.step, "optimizer.step")
    for p, g in zip(held, gradients, strict=True):
        if (p.grad is None) != (g is None) or (g is not None and p.grad is not None and not torch.equal(p.grad, g)):
            why = (
                "g += ... and g.mul_(...) write into w.grad itself, which others may still need: g + decay * w is new."
            )
            raise Wrong(f"gradients that step() leaves alone ({training.what})", "a changed .grad", why)
    return [p.detach().clone() for p in held]


def _run(answer: Answer, training: Training) -> list[Rows]:
    """The parameters after each step."""
    optimizer, held = _made(answer, training)
    return [_step(answer, optimizer, held, training, step) for step in range(training.steps)]


def _one(answer: Answer, training: Training, every: list[Training]) -> None:
    want = trained(training, RIGHT)
    try:
        found = _run(answer, training)
    except (AttributeError, TypeError, ZeroDivisionError) as error:
        if not training.hint:
            raise
        raise Wrong(f"{training.what}: no error", f"{type(error).__name__}: {error}", training.hint) from None
    difference = _difference(found, want)
    if difference is None:
        return
    step, which, place, got, wanted = difference
    line = answer.line
    why = _why(answer, training, found, every)
    answer.line = line
    start = [w for group in training.groups for w in group.start][which]
    kind = "bias" if start.dim() < 2 else "weight"
    what = f"{kind} number {which + 1}, {tuple(start.shape)}, at {list(place)} after step {step + 1}"
    raise Wrong(f"{wanted:.12g} as {what} ({training.what})", f"{got:.12g}", why)


def _difference(found: list[Rows], want: list[Rows]) -> tuple[int, int, tuple[int, ...], float, float] | None:
    """Where they differ first: step, parameter, place, and both numbers."""
    for step, (f, w) in enumerate(zip(found, want, strict=True)):
        for which, (a, b) in enumerate(zip(f, w, strict=True)):
            unequal = ~torch.isclose(a, b, rtol=1e-9, atol=1e-11)
            if unequal.any():
                place = tuple(unequal.nonzero()[0].tolist())
                return step, which, place, a[place].item(), b[place].item()
    return None


def _goes_on(answer: Answer, training: Training) -> None:
    """Stop after two steps, save, and go on with another optimizer."""
    want = trained(training, RIGHT)
    optimizer, held = _made(answer, training)
    for step in range(2):
        _step(answer, optimizer, held, training, step)
    again, others = _made(answer, training, [p.detach() for p in held])
    try:
        again.load_state_dict(optimizer.state_dict())
    except (ValueError, KeyError, TypeError) as error:
        why = "Keep in self.state[p] what torch.optim's own optimizers keep there: tensors and numbers, by name."
        raise Wrong("a state that can be saved and loaded", f"{type(error).__name__}: {error}", why) from None
    found = [_step(answer, again, others, training, step) for step in range(2, training.steps)]
    difference = _difference(found, want[2:])
    if difference:
        why = "Velocities belong into self.state[p], which state_dict saves. In a dict of one's own, or an attribute, "
        why += "they are lost when training is stopped and goes on, and every step after that is another one."
        got = f"{difference[3]:.12g}, after state_dict and load_state_dict"
        raise Wrong(f"{difference[4]:.12g}, as without a stop ({training.what})", got, why)


def _why(answer: Answer, training: Training, found: list[Rows], every: list[Training]) -> str:
    """The misconception that explains what came out here, and in the other trainings."""
    seen = [(training, found)]
    for other in every:
        try:
            seen.append((other, _run(answer, other)))
        except Exception:  # then this one says nothing
            continue
    for why, way in WAYS.items():
        if all(_difference(result, trained(each, way)) is None for each, result in seen):
            return why
    if any(bool(w.isnan().any()) for w in found[-1]):
        return f"NaN is 0 / 0. {training.hint}" if training.hint else "NaN is 0 / 0, or infinity minus infinity."
    for why, way in WAYS.items():  # one mistake of several, perhaps
        if _difference(found, trained(training, way)) is None:
            return why
    return training.hint or (
        "Work the first step out by hand for w = [[3, 4]] and g = [[6, 8]]: ||w|| is 5, ||g|| is 10, and what is "
        f"subtracted is {short([0.06, 0.08])} for lr 2 and a coefficient of 0.01."
    )


def _global(x: Given) -> float:
    w, g = (sum(euclid(t) ** 2 for t in ts) ** 0.5 for ts in (x.all_w, x.all_g))
    return ratio(x.c * w, g + x.wd * w) if x.w.dim() > 1 else 1.0


def _of_weights(trust: Any) -> Any:
    """This trust for weights, 1 for biases."""
    return lambda x: trust(x) if x.w.dim() > 1 else 1.0


OWN = "Each weight has a velocity of its own. There {}: keep it in self.state[p], under p itself."
WAYS: dict[str, Way] = {
    OWN.format("weights of one shape share one"): Way(place=lambda group, i, w: w.shape),
    OWN.format("all parameters share one"): Way(place=lambda group, i, w: 0),
    OWN.format("all parameters of a group share one"): Way(place=lambda group, i, w: group),
    "The parameters are as they were. w = w - v makes a new tensor; w -= v, or w.sub_(v), writes into the parameter.": (
        Way(update=lambda x, t: (x.v, 0 * x.w))
    ),
    "That goes uphill: v is subtracted from w.": (
        Way(update=lambda x, t: (v := x.m * x.v + x.lr * t * (x.g + x.wd * x.w), -v))
    ),
    "That is SGD: each weight's step is multiplied by its trust, too.": Way(trust=lambda x: 1.0),
    "trust_coefficient is missing in the trust.": Way(trust=lambda x: right_trust(x) / x.c if _inside(x) else 1.0),
    "The trust is upside down: ||w|| is above the line, so that large weights make large steps.": Way(
        trust=_of_weights(lambda x: ratio(x.c * (euclid(x.g) + x.wd * euclid(x.w)), euclid(x.w)))
    ),
    "Each weight has a trust of its own, from its own norms. Those are the norms of all parameters together.": (
        Way(trust=_global)
    ),
    "Biases have a trust of 1: parameters with fewer than two dimensions are left out of the formula.": Way(
        trust=lambda x: ratio(x.c * euclid(x.w), euclid(x.g) + x.wd * euclid(x.w))
    ),
    "Biases move, too: their trust is 1, which is not to leave them out.": Way(
        update=lambda x, t: (v := (x.m * x.v + x.lr * t * (x.g + x.wd * x.w)) * (x.w.dim() > 1), v)
    ),
    "Weight decay belongs below the line, too: ||g|| + weight_decay * ||w||.": Way(
        trust=_of_weights(lambda x: ratio(x.c * euclid(x.w), euclid(x.g)))
    ),
    "Below the line is a sum of two norms, ||g|| + weight_decay * ||w||, and not the norm of a sum.": Way(
        trust=_of_weights(lambda x: ratio(x.c * euclid(x.w), euclid(x.g + x.wd * x.w)))
    ),
    "The norms are without their roots there: ||w|| is the root of the sum of squares.": Way(
        trust=lambda x: right_trust(x, lambda t: euclid(t) ** 2)
    ),
    "||w|| is the root of the sum of squares. That is the sum of absolute values.": Way(
        trust=lambda x: right_trust(x, lambda t: t.abs().sum().item())
    ),
    "||w|| is the root of the sum of squares, over all numbers of w. That is the largest number alone.": Way(
        trust=lambda x: right_trust(x, lambda t: t.abs().max().item())
    ),
    "The trust is capped at 1. The formula may give more: gradients that are small beside their weights ask for it.": (
        Way(trust=lambda x: min(1.0, right_trust(x)))
    ),
    "The trust is capped. The formula may give more: gradients that are small beside their weights ask for it.": (
        Way(trust=lambda x: min(10.0, right_trust(x)))
    ),
    "The trust has a least value. The formula may give less: large gradients beside small weights ask for it.": (
        Way(trust=lambda x: max(1e-3, right_trust(x)))
    ),
    "Where the gradient is 0, trust is what the formula gives, and not 1: weight_decay * ||w|| is below the line.": (
        Way(trust=lambda x: right_trust(x) if euclid(x.g) > 0 else 1.0)
    ),
    "A gradient of zeros is a gradient: velocity and weight decay move the weight as in any other step.": Way(
        update=lambda x, t: right_update(x, t) if euclid(x.g) > 0 else (x.v, 0 * x.w)
    ),
    "Weights of zeros never move with a trust of 0: where ||w|| is 0, trust is 1.": Way(
        trust=lambda x: right_trust(x) if _inside(x) or x.w.dim() < 2 else 0.0
    ),
    "The weight decay is in the trust, but not in the step: v grows by lr * trust * (g + weight_decay * w).": Way(
        update=lambda x, t: (v := x.m * x.v + x.lr * t * x.g, v)
    ),
    "The trust multiplies the weight decay, too: lr * trust * (g + weight_decay * w), with both in the bracket.": Way(
        update=lambda x, t: (v := x.m * x.v + x.lr * (t * x.g + x.wd * x.w), v)
    ),
    "That is decoupled weight decay, as in AdamW. Here it is added to the gradient: g + weight_decay * w.": Way(
        update=lambda x, t: (v := x.m * x.v + x.lr * t * x.g, v + x.lr * x.wd * x.w)
    ),
    "The weight decay has the wrong sign: it is added to the gradient, and the step goes against both.": Way(
        update=lambda x, t: (v := x.m * x.v + x.lr * t * (x.g - x.wd * x.w), v)
    ),
    "The learning rate is inside of v: v = momentum * v + lr * trust * (...), then w -= v. Outside, as in torch's SGD, "
    "a new rate would change earlier steps, too.": Way(
        update=lambda x, t: (v := x.m * x.v + t * (x.g + x.wd * x.w), x.lr * v)
    ),
    "The trust is inside of v, as the learning rate is. There each step's trust multiplies all earlier steps again.": (
        Way(update=lambda x, t: (v := x.m * x.v + x.lr * (x.g + x.wd * x.w), t * v))
    ),
    "lr and trust are inside of v. There the velocity is of bare gradients, and this step's lr and trust multiply all "
    "of it.": Way(update=lambda x, t: (v := x.m * x.v + (x.g + x.wd * x.w), x.lr * t * v)),
    "lr is missing: v = momentum * v + lr * trust * (g + weight_decay * w).": Way(
        update=lambda x, t: (v := x.m * x.v + t * (x.g + x.wd * x.w), v)
    ),
    "There is no momentum: is v kept in self.state[p] from step to step, and multiplied by momentum?": Way(
        update=lambda x, t: (x.v, x.lr * t * (x.g + x.wd * x.w))
    ),
    "Old velocity counts in full there: it is multiplied by momentum in each step.": Way(
        update=lambda x, t: (v := x.v + x.lr * t * (x.g + x.wd * x.w), v)
    ),
    "The new step counts in full, without a factor of (1 - momentum).": Way(
        update=lambda x, t: (v := x.m * x.v + (1 - x.m) * x.lr * t * (x.g + x.wd * x.w), v)
    ),
    "That is Nesterov's momentum, which looks one step ahead. Here w -= v, and no more.": Way(
        update=lambda x, t: (
            v := x.m * x.v + x.lr * t * (x.g + x.wd * x.w),
            x.m * v + x.lr * t * (x.g + x.wd * x.w),
        )  # fmt: skip
    ),
    "All groups get the first group's options there. Take them from the group that a parameter is in.": (
        Way(options=lambda first, own, default: first)
    ),
    "self.defaults has what is not said of a group. Read the group's own: there is what was said, and what a scheduler "
    "changes.": Way(options=lambda first, own, default: default),
}


def _inside(x: Given) -> bool:
    """Whether the formula gives this trust, and not a rule for biases or zeros."""
    return x.w.dim() > 1 and euclid(x.w) > 0 and euclid(x.g) + x.wd * euclid(x.w) > 0
