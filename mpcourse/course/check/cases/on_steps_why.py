"""Why a step is wrong, told from what was seen of it: the misconception where the facts name one, else the facts."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F

from mpcourse.common.words import counted
from mpcourse.course.check.cases.on_steps import PipelinedStep
from mpcourse.course.check.cases.on_steps_watched import StepSeen
from mpcourse.course.check.explain import explanation_of
from mpcourse.course.check.facts.schedules import actions_text
from mpcourse.course.check.facts.tensors import close
from mpcourse.course.check.wrong import Wrong, to_numpy
from mpcourse.pipeline import Action

Tensor = torch.Tensor
SPLIT = "x.tensor_split(m) makes the micro-batches, and each goes through the stages by itself."
NOWHERE = "No stage got a gradient: does each B call backward?"
ELSEWHERE = (
    "The backwards have run, and these parameters have nothing of it: was a stage copied, so that its copy has the "
    "gradients, or were they taken away again?"
)
CROSSES = (
    "A tensor crosses without detach, so the last stage's backward runs on through all stages before it, and their own "
    "B comes too late. retain_graph=True does not help: detach what crosses."
)


def wrong_input(seen: StepSeen) -> Wrong:
    """Of an F whose input is no micro-batch's."""
    s, given = seen.strangers[0]
    made = "what the stage before made of one micro-batch" if s else "one micro-batch"
    asked = f"an F of stage {s} to be given {made}, of {seen.case.asked}"
    examples = [_examples(seen.case.x, other) for stage, other in seen.strangers if stage == 0]
    pieces = [rows for rows in examples if rows is not None]
    if s > 0 or len(pieces) < len(examples):
        return Wrong(asked, f"a tensor of shape {tuple(given.shape)} that is none of them", SPLIT)
    first = f"{len(pieces[0])} of the {len(seen.case.x)} examples, from {pieces[0][0]} on"
    return Wrong(asked, first, _why_pieces(seen.case, pieces))


def _examples(x: Tensor, given: Tensor) -> range | None:
    n = len(given)
    return next((range(i, i + n) for i in range(len(x) - n + 1) if close(given, x[i : i + n])), None) if n else None


def _why_pieces(case: PipelinedStep, pieces: list[range]) -> str:
    """How many pieces was x cut into, if these are some of them?"""
    m, p, n = case.m, case.p, len(case.x)
    fits = [count for count in range(1, 2 * n) if set(pieces) <= set(_cut(n, count))]
    if fits == [2 * m]:
        return f"x is cut into {2 * m} pieces: len(schedule[0]) counts forwards and backwards. There are m of each."
    if fits == [p]:
        return f"x is cut into {p} pieces, as many as there are stages. Micro-batches: one for each k of the schedule."
    if not fits:
        return f"{SPLIT} chunk and split cut elsewhere where the batch is not a multiple of m."
    if fits[0] == 1:
        return f"x is not cut, the schedule has {m} micro-batches. {SPLIT}"
    more = " or more" * (len(fits) > 1)
    return f"x is cut into {fits[0]}{more} pieces, the schedule has {counted(m, 'micro-batch')}. {SPLIT}"


def _cut(examples: int, count: int) -> list[range]:
    pieces = torch.arange(examples).tensor_split(count)
    return [range(int(piece[0]), int(piece[-1]) + 1) for piece in pieces if len(piece)]


def wrong_order(seen: StepSeen, so_far: bool = False, then: str = "") -> Wrong | None:
    """Of actions that ran otherwise than asked, if some did; so_far: the run has stopped midway, as `then` says."""
    for s, (row, want) in enumerate(zip(seen.rows, seen.case.schedule, strict=True)):
        if row != (want[: len(row)] if so_far else want):
            why = CROSSES if seen.uncut else _why_order(row, want)
            return Wrong(f"stage {s} to run {actions_text(want)}", actions_text(row) + then, why)
    return None


def _why_order(row: list[Action], want: list[Action]) -> str:
    at = next((i for i, (a, b) in enumerate(zip(row, want, strict=False)) if a != b), None)
    if at is not None and row[at].kind == want[at].kind:
        got, asked = row[at], want[at]
        forwards = [a for a in row[:at] if a.kind == "F"]
        if not (got in row[:at] and got.kind == "F"):
            why = f"{got} runs where {asked} is asked: the k of an action says which micro-batch it is of."
            if got.kind == "B" and forwards[-1:] == [got.of("F")]:
                why += " With one place a stage, the next F overwrites what a B needs: keep it for each micro-batch."
            return why
    if len(row) > len(set(row)):
        twice = next(a for a in row if row.count(a) > 1)
        return f"{twice} runs more than once. Keep what the F returned: its B starts there."
    if sorted(row) != sorted(want):
        missing = next((a for a in want if a not in row), None)
        why = "Each action in the list is one forward, or one backward, of this stage."
        if missing and missing.kind == "B":
            why += " Where its gradient has not arrived, the stage waits, and comes back to it: it leaves nothing out."
        return f"{missing} does not run. {why}" if missing else why
    assert at is not None
    got, asked = row[at], want[at]
    if got.kind == "B":
        return f"{got} runs before it is this stage's turn: B is a call of its own for each stage, in its list's order."
    return (
        f"{got} runs where {asked} is asked. Each stage runs its list from front to back. While the next input is not "
        "there it waits, and runs nothing else."
    )


def wrong_tensors(seen: StepSeen) -> str:
    """Of a run in the right order whose gradients differ: which tensor was another one; empty if none was."""
    if seen.refilled:
        s, k = seen.refilled[0]
        return (
            f"When stage {s} runs B{k}, the tensor that its F{k} was given holds other numbers: it was written over. "
            "Each micro-batch's F starts from a tensor of its own."
        )
    if why := wrong_targets(seen):
        return why
    if seen.gradients:
        s, k, j = max(seen.gradients, key=lambda gradient: gradient[0])  # the stages before it go wrong with it
        if j is None:
            return f"Stage {s}'s B{k} starts from a tensor that is not the gradient of what its F{k} returned."
        return (
            f"Stage {s}'s B{k} starts from the gradient of micro-batch {j}. Gradients come back for each micro-batch: "
            "keep each under its k."
        )
    return ""


def wrong_targets(seen: StepSeen) -> str:
    """Of losses that were taken against other targets; empty where there are none."""
    for k, j in seen.losses:
        if j != k:
            whose = f"the targets of micro-batch {j}" if j is not None else "targets that are no micro-batch's"
            return f"The loss of micro-batch {k} is taken against {whose}. Its own: target.tensor_split(m)[{k}]."
    return ""


def weighted(case: PipelinedStep, parameters: list[torch.nn.Parameter]) -> str:
    """The mistake in weighing micro-batches, or in adding up, that gives just these gradients; empty if none does."""
    got = [to_numpy(q.grad) for q in parameters if q.grad is not None]
    return explanation_of(got, _weighings(case), lambda a, b: len(a) == len(b) and all(map(close, a, b)))


def _weighings(case: PipelinedStep) -> Iterator[tuple[str, list[np.ndarray]]]:
    """(why, gradients of all parameters) of the known mistakes.

    Of numpy, which computes a hundred small sums at once, where each of torch's would be looked at on its way to a GPU.
    """
    parts = []  # of each micro-batch's own mean loss
    for x, target in case.pieces:
        loss = F.mse_loss(case.whole(x), target)
        gradients = torch.autograd.grad(loss, list(case.whole.parameters()))
        parts.append((len(x) / len(case.x), [g.numpy() for g in gradients]))
    before = [g.numpy() for g in case.earlier]

    def of(weights: Callable[[float, int], float], earlier: float = 1.0) -> list[np.ndarray]:
        """weights: of a micro-batch in a stage, from its share of the examples. earlier: of the gradients before."""
        return [earlier * b + sum(weights(share, j // 2) * g[j] for share, g in parts) for j, b in enumerate(before)]

    m, p, n, first, last = case.m, case.p, len(case.x), parts[0][0], parts[-1][0]
    yield "There were gradients of a step before. They are kept: new ones are added to them.", of(lambda w, s: w, 0.0)
    yield "Each micro-batch counts in full: its loss is a mean over its own examples only.", of(lambda w, s: 1.0)
    yield (
        "All micro-batches count the same, but some have one example more: the mean of means is not the mean. "
        "Weigh by len(target of k) / len(target).",
        of(lambda w, s: 1 / m),
    )
    alike = (
        "All micro-batches have the weight of one of them, but some have one example more. Weigh each by its own: "
        "len(target of k) / len(target)."
    )
    yield alike, of(lambda w, s: first)
    yield alike, of(lambda w, s: last)
    yield (  # and to weigh by the share twice, which is the same where all shares are 1 / m
        "The loss is divided twice: its share of the examples is a weight already. To weigh by it again, or to divide "
        "by the number of micro-batches, makes it smaller once more.",
        of(lambda w, s: w / m),
    )
    divided = "The loss is divided by the number of examples, but it is a mean over them already."
    yield divided, of(lambda w, s: 1 / n)
    yield divided, of(lambda w, s: w / n)
    yield divided, of(lambda w, s: 1 / m / n)
    for d in (m, n):
        too = "Gradients that were there before the step are divided too. Weigh the loss before its backward."
        yield too, of(lambda w, s: w, 1 / d)
        yield too, of(lambda w, s: 1 / m, 1 / d)
    stages = "Each stage weighs the gradient once more. It is weighed with the loss, and that reaches all stages."
    yield stages, of(lambda w, s: w ** (p - s))
    yield stages, of(lambda w, s: (1 / m) ** (p - s))
    yield NOWHERE, of(lambda w, s: 0.0)
    added = "Gradients are added twice: one backward for each micro-batch and stage."
    yield added, of(lambda w, s: 2 * w)
    yield added, of(lambda w, s: 2 * w if s == p - 1 else w)
