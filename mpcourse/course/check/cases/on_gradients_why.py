"""The misconception behind a gradient that is not the mean, told by what it is instead."""

from collections.abc import Sequence

import numpy as np

from mpcourse.common.words import named
from mpcourse.course.check.cases.on_gradients import CallSeen, Kind, mean, total_of

_SAME = (
    "All ranks must make the same sums in the same order, for the same parameters, also where a gradient is None on "
    "one of them: it counts as zeros there."
)


def why(
    facts: Sequence[CallSeen], rank: int, kind: Kind, wrong: set[str], parameters: Sequence[Kind], drawn: bool
) -> str:
    """For `kind`'s gradient on `rank`. wrong: the names of all parameters whose gradients are."""
    size, name = len(facts), kind.name
    got, own = facts[rank].after.gradients[name], facts[rank].before.gradients[name]
    want, total = mean(facts, name), total_of(facts, name)
    if want is None or total is None:
        return _not_none(kind)
    if got is None:
        return _none(facts, rank, name)
    shared = facts[rank].shared
    if shared and name in shared:
        return (
            f"The gradients of {shared[0]} and {shared[1]} lie in the same memory: what is written last is in both. "
            "Each needs memory of its own: a new array for each parameter, or a place of its own in one row."
        )
    if np.isnan(got).any():
        return "NaN is 0 / 0, or memory that was never written: torch.empty and np.empty hold anything."
    after = [seen.after.gradients[name] for seen in facts]
    right = [r for r, g in enumerate(after) if g is not None and _close(g, want)]
    unchanged = own is not None and _close(got, own)
    having = [r for r, seen in enumerate(facts) if seen.before.gradients[name] is not None]
    if right and size > 1:
        return _some_right(facts, rank, kind, right, unchanged)
    if unchanged and size > 1:
        return _unchanged(facts, kind, wrong, parameters)
    if _close(got, total) and size > 1:
        return _sum(kind, wrong, parameters)
    if own is not None and _close(got, own / size) and size > 1:
        return (
            "That is this rank's own gradient, divided by the number of ranks. The sum went elsewhere, or was never "
            "made: comm.Allreduce(MPI.IN_PLACE, x) leaves it in x, comm.Allreduce(x, y) in y."
        )
    if _close(got, want / size):
        return "Divided by the number of ranks twice. Once is enough, before the sum or after it."
    if len(having) < size and _close(got, total / len(having)):
        return (
            f"Divided by the number of ranks that have a gradient. One that is None counts as zeros: divide by {size}."
        )
    if _close(got, total * size) or _close(got, want + total) or _close(got, 2 * want):
        return _doubled(kind, wrong)
    had = [g for seen in facts if (g := seen.before.gradients[name]) is not None]
    if any(_close(got, f(had, axis=0)) for f in (np.max, np.min, np.prod)):
        return "The ranks' gradients were put together by something else than a sum: op=MPI.SUM, and divide."
    if own is not None and (_close(got, own + want) or _close(got, own + total)):
        return (
            "The sum was added to the gradient that was there: put it in its place, p.grad.copy_(...) or p.grad = ..."
        )
    return _else(kind, got, want, had, drawn)


def _not_none(kind: Kind) -> str:
    if kind.frozen:
        return (
            "requires_grad is False: it is frozen. With a gradient of zeros, weight decay and momentum would move it."
        )
    return (
        "No rank has a gradient for it, so it stays None. Zeros are something else: an optimizer passes None over, and "
        "with zeros weight decay and momentum still move the parameter."
    )


def _none(facts: Sequence[CallSeen], rank: int, name: str) -> str:
    if facts[rank].before.gradients[name] is not None:
        return "There was a gradient, and now it is None: the mean takes its place. None is what zero_grad leaves."
    return (
        "A gradient that is None here, but not on another rank, counts as zeros, and becomes the mean as everywhere: "
        "p.grad = torch.zeros_like(p) before the sum. Else the copies of the model drift apart."
    )


def _some_right(facts: Sequence[CallSeen], rank: int, kind: Kind, right: list[int], unchanged: bool) -> str:
    if kind.memory != "rows":
        return (
            "The same numbers, in other places: MPI sums memory as it lies, and a transposed tensor lies column by "
            "column. On all ranks the order must be one: .contiguous() before the sum, .copy_(...) after it."
        )
    if facts[rank].before.gradients[kind.name] is None:
        return (
            "The ranks which had a gradient have the mean. This one, where it was None, needs it too: p.grad = ... "
            "also where there was none."
        )
    has = f"{named(right).capitalize()} {'has' if len(right) == 1 else 'have'} the mean"
    if unchanged:
        return f"{has}; all ranks need it, to take the same step. Reduce brings it to one rank only: Allreduce."
    return f"{has}; all ranks need the same one, to take the same step."


def _unchanged(facts: Sequence[CallSeen], kind: Kind, wrong: set[str], parameters: Sequence[Kind]) -> str:
    kinds = {k.name: k for k in parameters}
    right = [k for k in parameters if k.name not in wrong and not k.frozen]
    if facts[0].returned is not None:
        return "Something was returned, and the gradient is as it was: the mean has to be in p.grad."
    if right and all(kinds[n].memory != "rows" for n in wrong) and all(k.memory == "rows" for k in right):
        return (
            "The sum went into a copy: .contiguous(), .reshape(-1) and .flatten() copy a tensor that is not "
            "contiguous, and give the tensor itself only where it is. Put the sum back: p.grad.copy_(...)."
        )
    if right and len({kinds[n].dtype for n in wrong}) == 1 and all(k.dtype != kind.dtype for k in right):
        return (
            "The sum went into a copy: .double(), .float() and .astype() copy where the dtype is another one, and only "
            "there. Put the sum back: p.grad.copy_(...)."
        )
    if right and wrong == {"scale"}:
        return "A gradient of shape () is left out: it is a parameter like any other."
    return (
        "The gradient is as it was: the sum went into a copy. .clone(), .copy(), .double(), .tolist() and np.array(x) "
        "copy, and x = x + y or x = comm.allreduce(x) give a name to something new. p.grad.numpy() shares memory with "
        "p.grad; else put the mean back: p.grad.copy_(mean)."
    )


def _sum(kind: Kind, wrong: set[str], parameters: Sequence[Kind]) -> str:
    if kind.twice and wrong == {kind.name}:
        return _doubled(kind, wrong)
    summed = {k.name for k in parameters if not k.frozen}
    if wrong & summed != summed and len(wrong) < len(parameters):
        return (
            f"That is the sum; other parameters' gradients are means: divide {named(sorted(wrong), 'gradient')}, too."
        )
    return (
        "That is the sum. The mean is asked, which does not grow with the number of ranks: divide by comm.size, into "
        "p.grad itself (p.grad /= comm.size)."
    )


def _doubled(kind: Kind, wrong: set[str]) -> str:
    if kind.twice and wrong <= {kind.name}:
        return (
            "It is one parameter under two names, with one gradient, and was treated twice. model.parameters() and "
            "model.named_parameters() give it once; a walk over modules does not."
        )
    return "Gradients were summed twice. Is what Allreduce has summed already added up, or summed, once more?"


def _else(kind: Kind, got: np.ndarray, want: np.ndarray, had: Sequence[np.ndarray], drawn: bool) -> str:
    if kind.memory != "rows" and _close(np.sort(got, axis=None), np.sort(want, axis=None)):
        return (
            "The right numbers in wrong places: a transposed tensor lies in memory column by column. .contiguous() "
            "before the sum, and .copy_(...) after it, keep numbers in their places."
        )
    if np.allclose(got, want, 1e-4, 1e-5):
        return (
            "Right to 6 digits or so: float64 went through float32, or what has 32 bits through fewer. Sum each "
            "gradient in its own dtype."
        )
    # bfloat16 keeps 8 binary digits of each rank's number, half 11.
    if np.all(np.abs(got - want) <= np.mean([np.abs(g) for g in had], axis=0) * 2.0**-8):
        return (
            "Right to 2 or 3 digits: something went through 16 bits, by .half() or .bfloat16(). Sum each gradient in "
            "its own dtype."
        )
    if drawn:
        return (
            "Are numbers in other places than they belong, or in other orders on different ranks? "
            f"{_SAME} Memory of a tensor that is not contiguous lies in another order than its rows."
        )
    return f"The mean is the sum of all ranks' gradients, over the number of ranks. {_SAME}"


def _close(got: np.ndarray, want: np.ndarray) -> bool:
    tight = 64 * float(np.finfo(got.dtype).eps)
    return got.shape == want.shape and bool(np.allclose(got, want, tight, tight))
