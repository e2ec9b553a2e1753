"""What a step holds: of a schedule with few micro-batches in flight, no more than these need."""

from collections import Counter
from typing import Any
from unittest import mock

from mpcourse.common.source import source_lines
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_steps import WIDTH, PipelinedStep
from mpcourse.course.check.wrong import Wrong
from mpcourse.pipeline import one_f_one_b, replay
from mpcourse.virtual import Box
from mpcourse.virtual.gpus.ledger import Allocation

STAGES, MICROBATCHES, EXAMPLES = 4, 16, 16
UNIT = EXAMPLES * WIDTH * 4  # bytes of one micro-batch between two stages
# Input, output and gradient of each micro-batch in flight, and of two that come and go. One tensor of each of the 16
# may stay: of a stage with more layers that would be little. Whoever lets go of nothing keeps two or three of each.
EACH, SPARE, STAY = 3, 2, 1


def memory(answer: Answer, box: Box) -> None:
    """Raise Wrong if a device holds more than its part of 1F1B's micro-batches in flight takes."""
    case = PipelinedStep(one_f_one_b(STAGES, MICROBATCHES), MICROBATCHES * EXAMPLES)
    in_flight = [round(peak) for peak in replay(case.schedule).peak]
    box.reset()
    before, start = list(box.ledger.used), {id(a) for a in box.ledger.live.values()}
    with mock.patch.object(box.ledger, "reset", side_effect=_forgets):
        case.run(answer)
    for s, most in enumerate(box.ledger.most):
        held, allowed = (most - before[s]) / UNIT, EACH * (in_flight[s] + SPARE) + STAY * MICROBATCHES
        if held > allowed and (long := _long(box, s)):
            asked = f"tensors of one micro-batch at a time on stage {s}"
            why = (
                "Each piece is cut from a tensor that requires a gradient, so that each backward makes a gradient as "
                "long as the whole batch, of zeros but for that piece. Nobody asks for a gradient of x, or of target: "
                "cut what needs none, or detach each piece."
            )
            raise Wrong(asked, f"{long} gradients as long as the whole batch", why)
        if held > allowed:
            raise Wrong(
                f"{in_flight[s]} of {MICROBATCHES} micro-batches in flight on stage {s}, as 1F1B has it: not more than "
                f"{allowed} tensors of a micro-batch's size at once",
                f"{held:.0f}: {_made(answer, box, s, start)}",
                "After its B a stage needs nothing of a micro-batch. What is kept longer makes 1F1B hold as much as "
                "GPipe: pop what the F kept and the gradient that arrived, do not retain_graph, detach losses.",
            )


def _forgets(*args: Any) -> None:
    raise Wrong(
        "the peak of memory to be measured",
        "a call of torch.vgpu.reset_peak_memory_stats, or of the box's reset",
        "That forgets what was held. A step does not hold less for it.",
    )


def _long(box: Box, device: int) -> int:
    """How many gradients as long as the whole batch were made there."""
    return sum(
        sign > 0 and a.device == device and a.nbytes >= UNIT * MICROBATCHES and a.phase == "backward"
        for _, a, sign in box.ledger.log
    )


def _made(answer: Answer, box: Box, device: int, start: set[int]) -> str:
    """On which lines most of what is held at the peak was made."""
    held: dict[int, Allocation] = {}
    for _, allocation, sign in box.ledger.log[: box.ledger.peak_at[device]]:
        if allocation.device == device and id(allocation) not in start and allocation.nbytes >= UNIT:
            if sign > 0:
                held[id(allocation)] = allocation
            else:
                held.pop(id(allocation), None)
    lines = Counter(a.line[1] for a in held.values() if a.line and a.line[0] == str(answer.path))
    source = source_lines(answer.path)
    return ", ".join(f"{count} made at line {n} `{source[n - 1].strip()}`" for n, count in lines.most_common(2))
