"""The weights of a parameter server, update by update, played again: in the right way, and in wrong ones."""

from collections.abc import Callable
from functools import partial

import numpy as np

from mpcourse.course.check.cases.on_models import Finding
from mpcourse.course.check.cases.on_updates import OLD, Played, WorkerStep, in_order, listed, near
from mpcourse.course.check.explain import explanation, holds

FIRST = "The answer is sent before the gradient is applied: apply it, and then send the new weights."


LATER = (
    "The server applied more before it answered. Iprobe and Waitsome may find several gradients at once: even then it "
    "applies one, answers that worker, and only then applies the next."
)


def repeated(played: Played) -> Finding | None:
    """Who computed a gradient at the same weights twice, though the server has changed them."""
    if near(played.final, played.start):
        return None
    for rank, steps in played.taken.items():
        for k, (a, b) in enumerate(zip(steps, steps[1:], strict=False), 1):
            if near(a.weights, b.weights):
                asked = f"rank {rank}'s gradient number {k + 1} at the weights that answered number {k}"
                known = listed(played, float("inf")) is None
                if known and (finding := _by_rule(played, _versions(played, _right))):
                    return finding
                if known and _answered_first(played):
                    return Finding(0, asked, f"weights in which number {k} is not applied yet", FIRST)
                return Finding(rank, asked, f"it was called with the same weights as number {k}", OLD)
    return None


def _answered_first(played: Played) -> bool:
    """Whether all answers are what the weights were before the gradient that is answered."""
    versions = _versions(played, _right)
    return all(
        near(step.weights, versions[at - 1])
        for rank, steps in played.taken.items()
        for step, at in zip(steps[1:], _own(played, rank)[1:], strict=False)
    )


def valued(played: Played) -> Finding | None:
    """What is wrong with weights: those at which gradients were computed, the server's, and the workers' in the end."""
    for rank, steps in played.taken.items():
        if steps and near(steps[0].weights, played.before[rank]):
            why = (
                "Nothing was received into it: comm.Recv(weights, 0) fills it, and so does weights[:] = comm.recv(...)."
            )
            asked = f"rank {rank}'s first gradient at the weights that the server sent"
            return Finding(rank, asked, "gradient was called with what was in the array before", why)
    versions = _versions(played, _right)
    if finding := unseen(played, versions):
        return _by_rule(played, versions) or finding
    if not near(played.final, versions[-1]):
        return Finding(0, *_end(played, versions))
    if finding := _answered_later(played, versions):
        return finding
    for rank, weights in played.left.items():
        if not near(weights, versions[-1]) and _version(weights, versions, _own(played, rank)[-1], None) is None:
            return Finding(rank, *_kept(played, rank, versions))
    return None


def _answered_later(played: Played, versions: list[np.ndarray]) -> Finding | None:
    """The first answer in which there are gradients that were applied after the one that it answers."""
    order: list[int] = played.order  # type: ignore[assignment]
    for at, (rank, k) in enumerate(in_order(played, order), 1):
        steps = played.taken[rank]
        answer = steps[k + 1].weights if k + 1 < len(steps) else played.left[rank]
        if (version := _version(answer, versions, at, None)) is not None and version > at:
            others = " and ".join(f"rank {r}'s" for r in order[at:version])
            asked = f"the answer to rank {rank}'s gradient number {k + 1} before another gradient is applied"
            return Finding(0, asked, f"{others} applied before the answer", LATER)
    return None


def _by_rule(played: Played, versions: list[np.ndarray]) -> Finding | None:
    """The first update that went wrong, where a wrong rule explains all weights that workers were sent."""
    if why := _wrong_rule(played):
        return Finding(0, *_first_update(played, versions, _versions(played, RULES[why])), why)
    return None


def _wrong_rule(played: Played) -> str:
    """What is said of the first wrong rule that explains all weights, those that workers were sent and the last."""
    return explanation({why: partial(_explains, rule) for why, rule in RULES.items()}, [((), played)], holds)


def _explains(rule: "Rule", played: Played) -> bool:
    others = _versions(played, rule)
    return unseen(played, others) is None and any(near(played.final, end) for end in (others[-1], played.start))


def _own(played: Played, rank: int) -> list[int]:
    """The versions that rank's gradients made, from that of the start, 0."""
    order: list[int] = played.order  # type: ignore[assignment]
    return [0] + [at + 1 for at, r in enumerate(order) if r == rank]


def _version(weights: np.ndarray, versions: list[np.ndarray], first: int, last: int | None) -> int | None:
    """Which of versions first, ..., last `weights` are."""
    candidates = range(len(versions))[slice(first, None if last is None else last + 1)]
    return next((v for v in candidates if near(weights, versions[v])), None)


def unseen(played: Played, versions: list[np.ndarray]) -> Finding | None:
    """The first gradient that was computed at other weights than the server's after the worker's gradient before."""
    turns = list(in_order(played, played.order))  # type: ignore[arg-type]
    for at, (rank, k) in enumerate(turns):
        step, own = played.taken[rank][k], _own(played, rank)
        if _version(step.weights, versions, own[k], at) is None:
            asked = f"rank {rank}'s gradient number {k + 1} at the weights that answered number {k}" if k else (
                f"rank {rank}'s first gradient at the weights that the server began with"
            )  # fmt: skip
            return Finding(rank, asked, *_why_unseen(played, versions, rank, k))
    return None


def _why_unseen(played: Played, versions: list[np.ndarray], rank: int, k: int) -> tuple[str, str]:
    step, own = played.taken[rank][k], _own(played, rank)
    i = int(np.flatnonzero(~np.isclose(step.weights, versions[own[k]], rtol=1e-9, atol=1e-9))[0])
    got = f"weights[{i}] was {step.weights[i].item():.6g}, asked {versions[own[k]][i].item():.6g}"
    old = _version(step.weights, versions, 0, own[k] - 1)
    if k and old is not None:
        return f"it was called with version {old}, which is of before", OLD
    if k:
        last = played.taken[rank][k - 1].gradient
        if near(step.weights, last):
            return got, "Those are the numbers of its own gradient. The server answers with the weights."
        for rate in (1.0, played.rate):
            base = step.weights + rate * last
            if _version(base, versions, own[k], None) is not None or near(base, played.taken[rank][k - 1].weights):
                return got, "The worker changes the weights itself, too. The server alone applies gradients."
        if others := _factors(played, versions, rank, k):
            return got, (
                f"Those are its weights before, less {others}, and the learning rate is {played.rate:g}. Each gradient "
                "counts once, in full, however old it is: does the server scale some, or the worker change what came?"
            )
    why = (
        "By these gradients the server never has such weights. Is anything but the gradient itself applied, is a "
        "buffer used before its Wait, or are other weights sent than those that were changed?"
    )
    return got, why


def _factors(played: Played, versions: list[np.ndarray], rank: int, k: int) -> str:
    """Gradients between rank's gradients k - 1 and k, and what they were multiplied with; empty where nothing fits."""
    order: list[int] = played.order  # type: ignore[assignment]
    base, end = played.taken[rank][k - 1].weights, _own(played, rank)[k]
    begin = _version(base, versions, 0, end - 1)
    if begin is None or end - begin >= len(base):
        return ""  # as many unknown factors as numbers fit anything
    sent = [(r, played.taken[r][j].gradient) for r, j in list(in_order(played, order))[begin:end]]
    columns = np.stack([gradient for _, gradient in sent], axis=1)
    difference = base - played.taken[rank][k].weights
    factors = np.linalg.lstsq(columns, difference, rcond=None)[0]
    if not near(columns @ factors, difference):
        return ""
    return " and ".join(f"{round(f, 6):.3g} times rank {r}'s gradient" for (r, _), f in zip(sent, factors, strict=True))


def _first_update(played: Played, versions: list[np.ndarray], others: list[np.ndarray]) -> tuple[str, str]:
    """(asked, got) for the first update in which two ways to play differ."""
    at = next((v for v, (a, b) in enumerate(zip(versions, others, strict=True)) if not near(a, b)), 0)
    i = int(np.abs(versions[at] - others[at]).argmax())
    before = versions[at - 1][i].item()
    rank: int = played.order[at - 1]  # type: ignore[index]
    asked = f"weights[{i}] to go from {before:.6g} to {versions[at][i].item():.6g} with gradient {at}, rank {rank}'s"
    return f"{asked}, learning_rate {played.rate:g}", f"workers were sent {others[at][i].item():.6g}"


def _end(played: Played, versions: list[np.ndarray]) -> tuple[str, str, str]:
    """(asked, got, why) for final weights that are not those of the last update."""
    wrong = np.flatnonzero(~np.isclose(played.final, versions[-1], rtol=1e-9, atol=1e-9))
    i = int(wrong[0])
    asked = f"weights[{i}] of the server to be {versions[-1][i].item():.6g} in the end"
    got = f"{played.final[i].item():.6g}"
    if near(played.final, played.start):
        why = (
            "They are as they were, while workers were sent the right ones. weights = weights - ... makes a new array; "
            "weights -= ... and weights[:] = ... change the one that serve was given."
        )
        return asked, f"{got}, as before", why
    if why := _wrong_rule(played):  # one that shows in the last update only
        return asked, got, why
    if (old := _version(played.final, versions, 0, len(versions) - 2)) is not None:
        lost = len(versions) - 1 - old
        why = "Each gradient is applied before its answer is sent, the last ones too."
        return asked, f"{got}: the last {lost} of {len(versions) - 1} gradients are missing", why
    return asked, got, "Do workers send all of the gradient, and is each of them applied once, to the caller's array?"


def _kept(played: Played, rank: int, versions: list[np.ndarray]) -> tuple[str, str, str]:
    """(asked, got, why) for a worker's weights in the end, which are not the last ones that it was sent."""
    weights, last = played.left[rank], versions[_own(played, rank)[-1]]
    i = int(np.flatnonzero(~np.isclose(weights, last, rtol=1e-9, atol=1e-9))[0])
    asked = f"weights[{i}] of rank {rank} to be {last[i].item():.6g} in the end, as the server sent last"
    got = f"{weights[i].item():.6g}"
    why = "What is received goes into the caller's array, and a worker changes nothing in it."
    if near(weights, played.before[rank]) or _version(weights, versions, 0, None) is not None:
        which = "what was in it before" if near(weights, played.before[rank]) else "older weights"
        got = f"{got}, {which}"
        why = (
            "weights = ... gives a name to another object, and the caller's array stays as it is. "
            "comm.Recv(weights, 0) fills it, and so does weights[:] = ..."
        )
        if played.steps > 1 and near(weights, played.taken[rank][-1].weights) and not near(weights, versions[0]):
            why = (
                "The answer to its last gradient is missing in them. Each gradient is answered, the last one too, and "
                "the answer goes into the caller's array."
            )
        if not played.steps:
            why = "Where steps is 0, every worker gets the first weights, too, and keeps them."
    return asked, got, why


# -- how weights go from version to version, in the right way and in wrong ones --

# Of the versions and the steps so far, to the next version.
Rule = Callable[[Played, list[np.ndarray], list[WorkerStep]], np.ndarray]


def _versions(played: Played, rule: Rule) -> list[np.ndarray]:
    versions, steps = [played.start], []
    for rank, k in in_order(played, played.order):  # type: ignore[arg-type]
        steps.append(played.taken[rank][k])
        versions.append(rule(played, versions, steps))
    return versions


def _right(played: Played, versions: list[np.ndarray], steps: list[WorkerStep]) -> np.ndarray:
    return versions[-1] - played.rate * steps[-1].gradient


def _scaled(factor: Callable[[Played], float]) -> Rule:
    return lambda p, v, s: v[-1] - factor(p) * s[-1].gradient


def _together(played: Played, versions: list[np.ndarray], steps: list[WorkerStep], rate: float) -> np.ndarray:
    """As many gradients as there are workers make one update."""
    if len(steps) % played.workers:
        return versions[-1]
    return versions[-1] - rate * np.sum([step.gradient for step in steps[-played.workers :]], axis=0)


RULES: dict[str, Rule] = {
    "The gradient is added. It points to where the loss grows: weights -= learning_rate * gradient.": (
        _scaled(lambda p: -p.rate)
    ),
    "The learning rate is missing: weights -= learning_rate * gradient.": _scaled(lambda p: 1.0),
    "The learning rate is missing, and the gradient is added: weights -= learning_rate * gradient.": (
        _scaled(lambda p: -1.0)
    ),
    "The learning rate is in it twice.": _scaled(lambda p: p.rate**2),
    "Each gradient is divided by the number of workers. Here nothing is averaged: each is an update of its own.": (
        _scaled(lambda p: p.rate / p.workers)
    ),
    "Each gradient is divided by comm.size. Here nothing is averaged: each is an update of its own.": (
        _scaled(lambda p: p.rate / (p.workers + 1))
    ),
    "Each gradient is divided by steps. Nothing is averaged here: each is an update of its own.": (
        _scaled(lambda p: p.rate / p.steps)
    ),
    "Workers are sent the weights that serve was given. Where does the updated array go? weights -= ... changes it in "
    "place.": lambda p, v, s: v[-1],
    "The worker sends its weights, and the server takes them for a gradient: send gradient(weights).": lambda p, v, s: (
        v[-1] - p.rate * s[-1].weights
    ),
    "Gradients are collected, and then applied together. Each is an update of its own, before its answer is sent.": (
        lambda p, v, s: _together(p, v, s, p.rate)
    ),
    "Gradients are collected, and then their mean is applied. Each is an update of its own, and nothing is averaged.": (
        lambda p, v, s: _together(p, v, s, p.rate / p.workers)
    ),
    "Gradients that were applied before are applied again: the buffer is added to, and never emptied.": (
        lambda p, v, s: v[-1] - p.rate * np.sum([step.gradient for step in s], axis=0)
    ),
    "The gradient is applied to the weights at which it was computed: what others changed meanwhile is lost. The "
    "server applies it to its own weights.": lambda p, v, s: s[-1].weights - p.rate * s[-1].gradient,
    "The worker applies its gradient, and the server takes over its weights: what others changed meanwhile is lost.": (
        lambda p, v, s: s[-1].weights - s[-1].gradient
    ),
    "Each update begins again from the first weights: what was changed before is lost. weights -= ... keeps it.": (
        lambda p, v, s: p.start - p.rate * s[-1].gradient
    ),
    "The gradient takes the place of the weights: weights -= learning_rate * gradient.": (
        lambda p, v, s: s[-1].gradient
    ),
    "The gradient is received into the weights themselves. It needs a buffer of its own: np.empty_like(weights).": (
        lambda p, v, s: (1 - p.rate) * s[-1].gradient
    ),
    "Weights are set to the step alone: -= takes it off, = does not.": lambda p, v, s: p.rate * s[-1].gradient,
    "Weights are set to the step alone: -= takes it off what they were.": lambda p, v, s: -p.rate * s[-1].gradient,
}
