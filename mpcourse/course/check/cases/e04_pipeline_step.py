"""What e04_pipeline_step is asked: a step by some schedules, against one backward of the whole batch's loss."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import nn

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_steps import PipelinedStep
from mpcourse.course.check.cases.on_steps_frozen import frozen
from mpcourse.course.check.cases.on_steps_memory import memory
from mpcourse.course.check.cases.on_steps_overlap import one_thread, overlap
from mpcourse.course.check.cases.on_steps_raised import explained
from mpcourse.course.check.cases.on_steps_watched import StepSeen
from mpcourse.course.check.cases.on_steps_why import (
    ELSEWHERE,
    NOWHERE,
    weighted,
    wrong_input,
    wrong_order,
    wrong_tensors,
)
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.facts.tensors import close, equal, is_on, lanes
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, short
from mpcourse.pipeline import gpipe, naive, one_f_one_b
from mpcourse.virtual import GPUS, Box, Event, virtual_gpus

Tensor = torch.Tensor
# So slow that nothing is ready when Python comes to read it: whoever reads a tensor waits, as on any busy GPU.
SLOW = replace(GPUS["Tesla P100-SXM2"], kernel=1e-2, workspace=0)
# Stages that take micro-batches in orders of their own, and backwards in another one.
OWN: Sequence[Sequence[tuple]] = [
    [("F", 1), ("F", 0), ("F", 2), ("B", 0), ("B", 2), ("B", 1)],
    [("F", 0), ("B", 0), ("F", 1), ("F", 2), ("B", 2), ("B", 1)],
]
# First one in which 2 actions, 3 stages or another number of pieces give pieces of different sizes: so it can be told
# how a wrong number of micro-batches was counted.
CASES: Sequence[tuple[Sequence[Sequence[tuple]], int]] = [
    (naive(3, 1), 7),
    (gpipe(2, 2), 4),
    (one_f_one_b(2, 3), 6),
    (one_f_one_b(2, 3), 7),
    (gpipe(3, 4), 9),
    (OWN, 5),
    (gpipe(1, 3), 5),
    (one_f_one_b(3, 5), 11),
    (naive(4, 2), 5),
]


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Every rank may call this; ranks do not talk."""
    with virtual_gpus(4, SLOW, overlap=True) as box, one_thread():
        steps = [step for schedule, batch in CASES for step in _steps(box, schedule, batch)]
        one_by_one(answer, [*steps, frozen])
        memory(answer, box)
        overlap(answer, box)


def _steps(box: Box, schedule: Sequence[Sequence[tuple]], batch: int) -> Iterator[Callable[[Answer], None]]:
    """A run with a look at what each stage does, and one that is judged by what comes out of it."""
    looked: list[StepSeen] = []

    def look(answer: Answer) -> None:
        looked[:] = [_seen(answer, PipelinedStep(schedule, batch))]

    def judge(answer: Answer) -> None:
        _values(answer, box, PipelinedStep(schedule, batch), looked[0])
        if wrong := wrong_order(looked[0]):
            raise wrong

    yield look
    yield judge


def _seen(answer: Answer, case: PipelinedStep) -> StepSeen:
    """A run with a look at what each stage does. Raises Wrong where that stops it, or where its inputs are wrong."""
    seen, stopped = StepSeen(case), None
    try:
        seen.run(answer)
    except (RuntimeError, LookupError, AttributeError, TypeError) as error:
        stopped = error
    case.unchanged()
    if seen.strangers:
        raise wrong_input(seen)
    if stopped is not None:
        raise explained(seen, stopped) or stopped
    return seen


def _values(answer: Answer, box: Box, case: PipelinedStep, seen: StepSeen) -> None:
    parameters = [q for stage in case.stages for q in stage.parameters()]
    box.reset()
    result = case.run(answer)
    copies, waits = lanes(box), _waits(box)
    for given, before, name in zip(case.given, (case.x, case.target), ("x", "target"), strict=True):
        equal(given, before, name, f"The caller still needs {name}.")
    _gradients(case, parameters, seen)
    on = case.devices[-1]
    if isinstance(result, float | int):
        why = "float() and .item() make Python wait for the GPU. Return the tensor; who wants a number asks for it."
        raise Wrong(f"the batch's loss as a tensor on {on}", f"{short(result)}, a number", why)
    is_on(result, on, "the batch's loss", "Each micro-batch's loss is computed on the last device: sum them up there.")
    if result.shape != ():
        why = "One number for the batch: each micro-batch's loss times its share of the examples, summed."
        raise Wrong("a scalar, the batch's loss", short(result), why)
    why = "" if result.dtype == case.loss.dtype and close(result, case.loss) else _why_loss(result, case)
    equal(result, case.loss, f"the loss of {case.asked}", why, 1e-4, 1e-5)
    if result.requires_grad:
        why = "Its graph holds the micro-batches' tensors as long as the caller keeps the number. Sum loss.detach()."
        raise Wrong("the batch's loss as a number without a graph", "one that still carries its graph", why)
    if not any(lane.endswith("cpu") for lane in copies) and waits:
        line = next((e.asked for e in waits if e.asked), "")
        raise Wrong(
            "no wait for a GPU before all work is given out",
            f"Python waited {counted(len(waits), 'time')}" + (f", at {line}" if line else ""),
            ".item(), float(), print, `if` on a tensor and copies to the CPU wait for a result. Meanwhile no other "
            "stage is given work: nothing overlaps.",
        )
    _copies(case, copies)


def _waits(box: Box) -> list[Event]:
    """Where Python waited although it had more work to give out."""
    given_out = max((i for i, e in enumerate(box.events) if e.kind == "enqueue"), default=0)
    return [e for e in box.events[:given_out] if e.kind == "wait"]


def _gradients(case: PipelinedStep, parameters: list[nn.Parameter], seen: StepSeen) -> None:
    wanted = [q.grad for q in case.whole.parameters()]
    for i, (p, want) in enumerate(zip(parameters, wanted, strict=True)):
        assert want is not None
        what = f"stage {i // 2}'s gradient, of {case.asked}"
        if p.grad is None:
            raise Wrong(
                what, "None", "It had a gradient from a step before. Gradients are added to that, not replaced."
            )
        if not close(p.grad, want):
            wrong = wrong_order(seen)
            if wrong and seen.uncut:
                raise wrong
            why = weighted(case, parameters)
            if why == NOWHERE and any(action.kind == "B" for row in seen.rows for action in row):
                why = ELSEWHERE
            if wrong and not why:
                raise wrong
            equal(p.grad, want, what, why or wrong_tensors(seen) or _facts(parameters, wanted), 1e-4, 1e-5)


def _facts(parameters: list[nn.Parameter], wanted: list[Tensor | None]) -> str:
    right = {i // 2 for i in range(0, len(wanted), 2) if _agree(parameters[i : i + 2], wanted[i : i + 2])}
    stages = ", ".join(map(str, sorted(right)))
    known = f"The gradients of stage {stages} are right." if right else "No stage's gradients are right in the end."
    return f"All actions ran in their order, each F and each B from the right tensor. {known}"


def _agree(parameters: list[nn.Parameter], wanted: list[Tensor | None]) -> bool:
    return all(
        q.grad is not None and w is not None and close(q.grad, w) for q, w in zip(parameters, wanted, strict=True)
    )


def _why_loss(result: Tensor, case: PipelinedStep) -> str:
    with torch.no_grad():
        parts = torch.stack([nn.functional.mse_loss(case.whole(x), target) for x, target in case.pieces])
    if close(result, parts.mean()):
        return "The mean of means is not the mean where some micro-batches have an example more: weigh each loss."
    if close(result, parts.sum()):
        return "This is the sum of the micro-batches' mean losses. The batch's loss is the mean over all its examples."
    if any(close(result, part) for part in parts):
        return "This is one micro-batch's loss."
    return "The gradients are right: so are the losses that they came from. How are they summed?"


def _copies(case: PipelinedStep, copies: list[str]) -> None:
    cuts = list(zip(case.devices, case.devices[1:], strict=False))
    want = Counter({f"{a} -> {b}": case.m for pair in cuts for a, b in (pair, pair[::-1])})
    got = Counter(copies)
    if got != want:
        lane = next(iter((got - want) or (want - got)))
        why = "Each cut is crossed by one activation and one gradient of each micro-batch, and by nothing else."
        if "cpu" in lane:
            why = "Tensors go from GPU to GPU. Over the CPU they take longer, and Python waits for them."
        raise Wrong(f"{want[lane]} copies {lane}, for {case.asked}", f"{got[lane]}", why)
