"""Misconceptions of e09_lars: for each what is said, and the way to make steps that it leads to."""

import dataclasses
from functools import partial
from typing import Any

import torch

from mpcourse.course.check.cases.on_lars import Given, Group, Way, euclid, ratio, right_trust, right_update, trained


def _global(x: Given) -> float:
    w, g = (sum(euclid(t) ** 2 for t in ts) ** 0.5 for ts in (x.all_w, x.all_g))
    return ratio(x.c * w, g + x.wd * w) if x.w.dim() > 1 else 1.0


def _inside(x: Given) -> bool:
    """Whether the formula gives this trust, and not a rule for biases or zeros."""
    return x.w.dim() > 1 and euclid(x.w) > 0 and euclid(x.g) + x.wd * euclid(x.w) > 0


def _of_weights(trust: Any) -> Any:
    """This trust for weights, 1 for biases."""
    return lambda x: trust(x) if x.w.dim() > 1 else 1.0


def _along(dim: int) -> Any:
    """A trust for each row, or column."""

    def trust(x: Given) -> torch.Tensor:
        w, g = (t.norm(dim=dim, keepdim=True) for t in (x.w, x.g))
        return x.c * w / (g + x.wd * w)

    return _of_weights(trust)


def _with(number: float, above: bool = False) -> Way:
    """With a number added below the line, and above it, too."""

    def trust(x: Given) -> float:
        w = euclid(x.w) + (number if above else 0.0)
        return x.c * w / (euclid(x.g) + x.wd * w + number)

    return Way(trust=_of_weights(trust))


def _kept_lr(first: Group, own: Group, default: Group) -> Group:
    return dataclasses.replace(own, lr=default.lr)


OWN = "Each weight has a velocity of its own. There {}: keep it in self.state[p], under p itself."
_WAYS: dict[str, Way | list[Way]] = {
    OWN.format("weights of one shape share one"): Way(place=lambda group, i, w: w.shape),
    OWN.format("all parameters share one"): Way(place=lambda group, i, w: 0),
    OWN.format("all parameters of a group share one"): Way(place=lambda group, i, w: group),
    "The parameters are as they were. w = w - v makes a new tensor; w -= v, or w.sub_(v), writes into the parameter.": (
        Way(update=lambda x, t: (x.v, 0 * x.w))
    ),
    "w moves by the velocity of the step before there: first the new v, then w -= v.": (
        Way(update=lambda x, t: (right_update(x, t)[0], x.v))
    ),
    "Only the first parameter of a group moves there: does the loop end too early, by a return or a break in it?": [
        Way(update=lambda x, t: right_update(x, t) if x.which == 0 else (x.v, 0 * x.w)),
        Way(update=lambda x, t: right_update(x, t) if x.which == x.group == 0 else (x.v, 0 * x.w)),
    ],
    "Only the last parameter of a group moves there: what stands below the loop is done once, not for each of them.": [
        Way(update=lambda x, t: right_update(x, t) if x.which == x.last else (x.v, 0 * x.w)),
    ],
    "Only the first of self.param_groups moves there: go through all of them.": (
        Way(update=lambda x, t: right_update(x, t) if x.group == 0 else (x.v, 0 * x.w))
    ),
    "The trust follows the norms in each step. There it is that of the first step, for ever.": (
        Way(trust=lambda x: x.memory.setdefault("trust", right_trust(x)))
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
    "Each weight has one trust, from the norm of all its numbers. There each row, or column, has one of its own.": [
        Way(trust=_along(0)),
        Way(trust=_along(1)),
        Way(trust=_along(-1)),
    ],
    "||w|| is the root of the sum of squares. torch.linalg.norm(w, 2) of a matrix is its largest singular value.": (
        Way(trust=lambda x: right_trust(x, lambda t: torch.linalg.matrix_norm(t, 2).max().item()))
    ),
    "Weights of zeros never move with a trust of 0: where ||w|| is 0, trust is 1.": Way(
        trust=lambda x: right_trust(x) if _inside(x) or x.w.dim() < 2 else 0.0
    ),
    "A number is added below the line there, so that weights of zeros hardly move, and small norms are drowned in it. "
    "The formula has none: ask for 0 instead, where trust is 1.": [
        _with(number, above)
        for number in (1e-16, 1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
        for above in (False, True)
    ],
    "A parameter without dimensions has fewer than two of them, too: its trust is 1.": Way(
        trust=lambda x: ratio(x.c * euclid(x.w), euclid(x.g) + x.wd * euclid(x.w)) if x.w.dim() != 1 else 1.0
    ),
    "Biases decay, too: the formula for v holds for every parameter, and only the trust of biases is another one.": Way(
        update=lambda x, t: (v := x.m * x.v + x.lr * t * (x.g + x.wd * x.w * (x.w.dim() > 1)), v)
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
    'A scheduler changes lr between steps: read group["lr"] in each. There it is what the optimizer was made with.': (
        Way(options=_kept_lr)
    ),
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
MISCONCEPTIONS = [
    (why, partial(trained, way=way))
    for why, ways in _WAYS.items()
    for way in (ways if isinstance(ways, list) else [ways])
]
