"""Why ranks begin with different parameters, such as a forgotten broadcast, or make a step that is not right."""

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from mpcourse.common.words import named
from mpcourse.course.check.cases.on_models import Finding
from mpcourse.course.check.cases.on_optimizers import Training, TrainingSeen, Values, Way, right, sum_over, trained
from mpcourse.course.check.explain import explanation_of

Gradients = list[np.ndarray | None]


def after_making(facts: Sequence[TrainingSeen], copied: str = "") -> Finding | None:
    """Whether all parameters that the optimizer holds have become rank 0's. copied: why a copy of one may have."""
    want = facts[0].start
    wrong = [
        (rank, name)
        for rank, seen in enumerate(facts)
        for name in want
        if not (seen.made[name].shape == want[name].shape and np.array_equal(seen.made[name], want[name]))
    ]
    if not wrong:
        return None
    rank, name = wrong[0]
    got = facts[rank].made[name]
    asked = f"{name} on rank {rank} to be that of rank 0 when the optimizer is made, {_first(want[name])}"
    if copied and np.array_equal(got, facts[rank].start[name]):
        return Finding(rank, asked, f"{_first(got)}, as it was", copied)
    return Finding(rank, asked, _first(got), _why_made(facts, rank, name, {n for _, n in wrong}))


def _why_made(facts: Sequence[TrainingSeen], rank: int, name: str, wrong: set[str]) -> str:
    got, starts = facts[rank].made[name], [seen.start[name] for seen in facts]
    names = set(facts[0].start)
    if np.isnan(got).any():
        return "NaN: was a buffer read that nobody wrote into?"
    if np.array_equal(got, starts[rank]):
        if wrong == {"fixed"}:
            return "A frozen parameter has a value, too, and the model computes with it: broadcast it like the others."
        if wrong < names:
            return f"Broadcast {named(sorted(wrong), 'parameter')} too. Go through all groups of the optimizer."
        return (
            "Ranks begin with different models: broadcast rank 0's parameters, and write them in place, p.data.copy_(x)"
            ". p = x gives a name to something else, and a copy that is broadcast changes nothing."
        )
    others = [r for r, start in enumerate(starts) if np.array_equal(got, start)]
    if others:
        return f"Those are rank {others[0]}'s: root=0, on all ranks."
    if np.allclose(got, np.mean(starts, axis=0)):
        return "That is the mean of all ranks' parameters. Rank 0's are asked: a mean of random starts is a poor start."
    if rank == 0:
        return "Rank 0's own parameters are those that all get: there they stay as they are."
    return "Parameters in another order, or a buffer that was not yet there? Broadcast one after the other, in place."


def why(training: Training, facts: Sequence[TrainingSeen], rank: int, name: str, step: int) -> str:
    """For parameter `name` on `rank` after `step`, the first that is wrong."""
    size, seen = len(facts), facts[rank]
    before = seen.values[step - 1] if step else seen.made
    if all(np.array_equal(seen.values[step][n], before[n]) for n in before):
        return "Nothing has moved: step has to call the wrapped optimizer's step, after gradients were averaged."
    if np.isnan(seen.values[step][name]).any():
        return "NaN is 0 / 0, or memory that was never written: torch.empty and np.empty hold anything."
    history = [f.values[s] for s in range(step + 1) for f in facts]
    ways = _WAYS if size > 1 else _ALONE
    others = ((says, [*chain(*trained(training, size, way, step + 1))]) for says, way in ways)
    says = explanation_of(history, others, lambda a, b: all(map(_alike, a, b)))
    if says is _OWN and _means(facts, step):
        return (
            "The mean was made after the step: each rank has moved by its own gradients, which .grad no longer shows. "
            "Average first, then step."
        )
    if says:
        return says
    if all(f.had[step][name] is None for f in facts) and seen.after[step][name] is not None:
        return (
            f"No rank has a gradient for {name} in step {step + 1}, and there it was given one of zeros, which weight "
            "decay and momentum turn into a step. Who has gradients differs from step to step: find out in each."
        )
    before_it, made = seen.rates
    if made != before_it:
        return (
            f"The learning rate was {before_it[0]:g}, and {made[0]:.3g} once the optimizer was made: it stays. Divide "
            "the sum of gradients: Adam's steps do not grow with it, and a smaller rate makes them smaller."
        )
    moved = [r for r, f in enumerate(facts) if not np.array_equal(f.values[step][name], seen.values[step][name])]
    if moved:
        return (
            f"Rank {rank} and {named(moved)} have different parameters now. From the same start, with the same "
            "gradients and the same learning rate, all ranks make the same step: do all of them have the mean?"
        )
    return (
        "All ranks made the same step, another one than one process. Is every gradient the sum over ranks, divided by "
        "their number, once, and has the wrapped optimizer made one step by it?"
    )


_OWN = "Each rank has stepped by its own gradients: average them over all ranks, into p.grad, before the step."
_ZEROS = (
    "A gradient that no rank has was taken for zeros. None means that the optimizer passes the parameter over; with "
    "zeros weight decay and momentum move it."
)


def _over(scale: Callable[[Gradients, int], float]) -> Callable[[Gradients, int], np.ndarray | None]:
    """The sum over ranks, times scale(gradients, rank)."""

    def mean(grads: Gradients, rank: int) -> np.ndarray | None:
        total = sum_over(grads)
        return None if total is None else total * scale(grads, rank)

    return mean


def _own(grads: Gradients, rank: int) -> np.ndarray | None:
    return grads[rank]


def _own_divided(grads: Gradients, rank: int) -> np.ndarray | None:
    g = grads[rank]
    return None if g is None else g / len(grads)


def _if_any_here(grads: Gradients, rank: int) -> np.ndarray | None:
    return right(grads, rank) if grads[rank] is not None else None


def _zeros(grads: Gradients, rank: int) -> np.ndarray | None:
    """Of the right shape by broadcasting, where no rank has one."""
    total = right(grads, rank)
    return np.zeros(1) if total is None else total


def _first_only(grads: Gradients, rank: int) -> np.ndarray | None:
    return grads[0]


_SLOW = (
    "The learning rate was changed in optimizer.param_groups before this step, and the step was made with the old one: "
    "hand on the wrapped optimizer's own list, not a copy of it."
)
_FORGETS = (
    "That is a step without what the optimizer keeps of earlier ones: momentum, or Adam's averages. Call the wrapped "
    "optimizer's own step, always the same optimizer's, and leave its state alone."
)
_WAYS: tuple[tuple[str, Way], ...] = (
    (_SLOW, Way(right, slower=False)),
    (_OWN, Way(_own, apart=True)),
    (
        "That is a step by the sum of gradients, not by their mean: divide by the number of ranks. Else the learning "
        "rate grows with it.",
        Way(_over(lambda grads, rank: 1.0)),
    ),
    ("Divided by the number of ranks twice. Once is enough.", Way(_over(lambda grads, rank: 1.0 / len(grads) ** 2))),
    (
        "That is a step by each rank's own gradient, divided by the number of ranks: the sum over ranks is missing, or "
        "went into a copy.",
        Way(_own_divided, apart=True),
    ),
    (
        "Each rank has stepped by its own gradients, and then parameters were averaged. For plain SGD that comes to "
        "the same, for Adam it does not: twice the gradient is not twice the step. Average gradients, then step.",
        Way(_own, average=True, apart=True),
    ),
    ("All ranks have stepped by rank 0's gradients: average those of all.", Way(_first_only)),
    (
        "Gradients of the first group were averaged, those of the others were not: go through all.",
        Way(right, only=1, apart=True),
    ),
    ("The wrapped optimizer has made two steps: once is enough, after gradients were averaged.", Way(right, steps=2)),
    (_FORGETS, Way(right, forgets=True)),
    (_ZEROS, Way(_zeros)),
    (
        "Divided by the number of ranks that have a gradient. One that is None counts as zeros: divide by comm.size.",
        Way(_over(lambda grads, rank: 1.0 / sum(g is not None for g in grads))),
    ),
    (
        "Where a gradient is None on this rank, but not on another, it becomes the mean, too: else this rank passes "
        "over a parameter that the others move.",
        Way(_if_any_here, apart=True),
    ),
)
_ALONE: tuple[tuple[str, Way], ...] = (
    (_SLOW, Way(right, slower=False)),
    (_FORGETS, Way(right, forgets=True)),
    (_ZEROS, Way(_zeros)),
    ("The wrapped optimizer has made two steps: once is enough, after gradients were averaged.", Way(right, steps=2)),
)


def _means(facts: Sequence[TrainingSeen], step: int) -> bool:
    """Whether gradients after this step are the mean over ranks of those before it."""
    for name in facts[0].had[step]:
        want = right([seen.had[step][name] for seen in facts], 0)
        for seen in facts:
            got = seen.after[step][name]
            if want is not None and (got is None or not np.allclose(got, want, 1e-9, 1e-11)):
                return False
    return True


def _alike(some: Values, others: Values) -> bool:
    return all(x.shape == others[n].shape and np.allclose(x, others[n], 1e-8, 1e-10) for n, x in some.items())


def _first(x: np.ndarray) -> str:
    return f"{x.flat[0].item()!r}" + (" ..." if x.size > 1 else "")
