"""Why a gradient of e06_bucket_overlap is not the mean, or a step has another number of all-reduces."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from mpcourse.course.check.cases.on_buckets import BucketCase, Grads

OWN = "That is this rank's own gradient: wait() puts the mean of all ranks into p.grad."
OWN_LATER = (
    "That is this rank's own gradient, and in the first step it was the mean. Between steps zero_grad() sets p.grad to "
    "None, and backward makes a new tensor for it, which is part of no bucket. wait() puts the mean into this one."
)
AGAIN = "That is the mean of the step before: what counts what is ready begins anew in each step."
STALE = (
    "Not all ranks have this gradient in this step, and on those without it the bucket still holds what it held in the "
    "step before. It counts as zeros there."
)
MORE = (
    "Gradients of a bucket travel in one array. Which parameters belong together is decided once, when the buckets are "
    "made, from the last parameter to the first."
)
ONE = (
    "One bucket for all begins when all gradients are there. bucket_bytes says how many bytes a bucket takes at most, "
    "and a parameter has p.numel() * p.element_size() of them."
)
FEWER = (
    "A bucket takes the next parameter only if it has no more than bucket_bytes with it, and a parameter has "
    "p.numel() * p.element_size() bytes."
)
ONE_AT_A_TIME = (
    "On odd ranks the second bucket is ready before the first. When the first has begun, the second can begin at once: "
    "a hook goes on as long as the next bucket is ready."
)


def why_of(case: BucketCase, step: int, rank: int, name: str, got: np.ndarray, steps: Sequence[Sequence[Grads]]) -> str:
    """What makes `got` of a gradient, or "". steps: of each, the gradients that every rank's own backward computes."""
    own = [grads[name] for grads in steps[step]]

    def is_(other: np.ndarray) -> bool:
        return np.allclose(got, other, 1e-6, 1e-8)

    if any(row is not None for row in own):
        others = {
            other: [grads[other] for grads in steps[step]]
            for other, row in steps[step][0].items()
            if other != name and row is not None and row.shape == got.shape
        }
        for why, made in _misread(own, others, rank):
            if is_(made):
                return OWN_LATER if why == OWN and step else why
    if step:
        before = _rows([grads[name] for grads in steps[step - 1]], got)
        for why, made in _left_from(before, own):
            if is_(made):
                return why
    if not got.any():
        return "These are zeros: was the bucket filled before backward had computed its gradients?"
    if len(own) > 1:
        return "Is the request's Wait called before the sum is read, and is each part put where it belongs?"
    return ""


def number_why(calls: int, most: int) -> str:
    """Why a step has `calls` all-reduces where it has `most` buckets."""
    return MORE if calls > most else ONE if calls == 1 else FEWER


def _rows(own: Sequence[np.ndarray | None], like: np.ndarray) -> np.ndarray:
    """One a rank, zeros for None."""
    return np.stack([np.zeros_like(like) if row is None else row for row in own])


def _left_from(before: np.ndarray, own: Sequence[np.ndarray | None]) -> Iterator[tuple[str, np.ndarray]]:
    """(why, gradient): what the step before, whose rows are given, leaves of itself."""
    yield AGAIN, before.mean(0)
    yield AGAIN, before.mean(0) / len(before)  # divided once more
    for left in (before.mean(0), before.sum(0)):
        yield STALE, np.mean([left if row is None else row for row in own], axis=0)


def _misread(
    own: Sequence[np.ndarray | None], others: Mapping[str, list[np.ndarray | None]], rank: int
) -> Iterator[tuple[str, np.ndarray]]:
    """(why, gradient): what misconceptions make of one parameter's mean. others: of the parameters of its shape."""
    has = [row for row in own if row is not None]
    rows = _rows(own, has[0])
    yield (
        "That is the mean, rounded to float32. The array of a bucket has the dtype of its parameters, which need not "
        "be torch's default.",
        rows.mean(0),
    )
    yield "That is the sum over ranks. Divide it by the number of ranks.", rows.sum(0)
    if own[rank] is not None:
        yield OWN, rows[rank]
    yield (
        "That is this rank's own gradient, divided by the number of ranks. There is a sum in the array from the "
        "request's Wait on.",
        rows[rank] / len(rows),
    )
    yield (
        "That is divided by the number of ranks twice: each gradient before the sum, and the sum once more.",
        rows.mean(0) / len(rows),
    )
    yield (
        "That is the mean added to this rank's own gradient. The mean takes its place.",
        rows[rank] + rows.mean(0),
    )
    if len(has) < len(rows):
        yield (
            "That is the mean over the ranks that have a gradient of this parameter. The others' counts as zeros, and "
            "the sum is divided by the number of all ranks.",
            np.mean(has, axis=0),
        )
    for theirs in others.values():
        if any(row is None for row in theirs):
            continue
        other = np.stack([row for row in theirs if row is not None])
        for mask in itertools.product((False, True), repeat=len(rows)):
            if any(mask):
                chosen = np.array(mask).reshape(-1, *[1] * (rows.ndim - 1))
                yield (
                    "That adds gradients of different parameters: ranks have begun their buckets in different orders, "
                    "and the collective calls of a communicator meet in the order in which each rank makes them. Fix "
                    "the order of buckets when they are made, and begin one when those before it have begun.",
                    np.where(chosen, other, rows).mean(0),
                )
