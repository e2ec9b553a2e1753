"""What e09_lars is asked: the steps of the formulas, by each weight's own norms, with a state that can be saved."""

import functools
from typing import Any

import torch

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_lars import DEFAULT, Rows, Training, Way, trained, trainings
from mpcourse.course.check.cases.on_lars_why import MISCONCEPTIONS
from mpcourse.course.check.explain import explanation, gives, probed
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, short

NAME = "LARS"
RIGHT = Way()


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Every rank may call this; ranks do not talk."""
    every = trainings(drawing().getrandbits(30))
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
        results = _run(answer, training)
    except RuntimeError as error:
        if "leaf Variable" not in str(error):
            raise
        why = "Keep @torch.no_grad() above step: an update in place of a parameter is nothing for autograd to record."
        raise Wrong("a step that autograd does not record", f"RuntimeError: {error}", why) from None
    except (AttributeError, TypeError, ZeroDivisionError) as error:
        if not training.hint:
            raise
        raise Wrong(f"{training.what}: no error", f"{type(error).__name__}: {error}", training.hint) from None
    difference = _difference(results, want)
    if difference is None:
        return
    step, which, place, got, wanted = difference
    why = _why(answer, training, results, every)
    start = [w for group in training.groups for w in group.start][which]
    kind = "bias" if start.dim() < 2 else "weight"
    what = f"{kind} number {which + 1}, {tuple(start.shape)}, at {list(place)} after step {step + 1}"
    raise Wrong(f"{wanted:.12g} as {what} ({training.what})", f"{got:.12g}", why)


def _rounded(results: list[Rows], want: list[Rows]) -> bool:
    """Whether they differ by no more than float32 would make of it."""
    pairs = [(a, b) for f, w in zip(results, want, strict=True) for a, b in zip(f, w, strict=True)]
    return all(bool((a - b).abs().max() <= 1e-6 * b.abs().max()) for a, b in pairs)


def _difference(results: list[Rows], want: list[Rows]) -> tuple[int, int, tuple[int, ...], float, float] | None:
    """Where they differ first: step, parameter, place, and both numbers."""
    for step, (f, w) in enumerate(zip(results, want, strict=True)):
        for which, (a, b) in enumerate(zip(f, w, strict=True)):
            unequal = ~torch.isclose(a, b, rtol=1e-9, atol=1e-11)
            if unequal.any():
                place = tuple(unequal.nonzero()[0].tolist())
                return step, which, place, a[place].item(), b[place].item()
    return None


def _same(results: list[Rows], want: list[Rows]) -> bool:
    return _difference(results, want) is None


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
    results = [_step(answer, again, others, training, step) for step in range(2, training.steps)]
    difference = _difference(results, want[2:])
    if difference:
        why = "Velocities belong into self.state[p], which state_dict saves. In a dict of one's own, or an attribute, "
        why += "they are lost when training is stopped and goes on, and every step after that is another one."
        got = f"{difference[3]:.12g}, after state_dict and load_state_dict"
        raise Wrong(f"{difference[4]:.12g}, as without a stop ({training.what})", got, why)


def _why(answer: Answer, training: Training, results: list[Rows], every: list[Training]) -> str:
    """The misconception that explains what came out here, and in the other trainings."""
    here = [((training,), results)]
    if why := explanation(MISCONCEPTIONS, [*here, *probed(answer, _run, [(other,) for other in every])], gives(_same)):
        return why
    if any(bool(w.isnan().any()) for w in results[-1]):
        return f"NaN is 0 / 0. {training.hint}" if training.hint else "NaN is 0 / 0, or infinity minus infinity."
    if _rounded(results, trained(training, RIGHT)):
        return (
            "That is right to 7 digits. A tensor made without a dtype is float32, and rounds; torch.zeros_like(p) has "
            "the dtype of p."
        )
    if why := explanation(MISCONCEPTIONS, here, gives(_same)):  # one mistake of several, perhaps
        return why
    return training.hint or (
        "Work the first step out by hand for w = [[3, 4]] and g = [[6, 8]]: ||w|| is 5, ||g|| is 10, and what is "
        f"subtracted is {short([0.06, 0.08])} for lr 2 and a coefficient of 0.01."
    )
