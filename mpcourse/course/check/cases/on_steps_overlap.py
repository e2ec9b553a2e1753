"""Whether stages work at the same time: what a step takes on the virtual clock, which no busy machine moves."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch.nn.functional as F
from torch import nn

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_steps import PipelinedStep
from mpcourse.course.check.wrong import Wrong
from mpcourse.pipeline import Schedule, gpipe, one_f_one_b, pipeline_step
from mpcourse.split import split
from mpcourse.virtual import Box

STAGES, MICROBATCHES, EXAMPLES = 4, 8, 16
# Times as long as the library's own step: any order of calls takes 1.7 at most if copies are made at once; with late
# ones, or one stage at a time, it is 2.4.
SLOWER = 2.2


def overlap(answer: Answer, box: Box) -> None:
    """Raise Wrong if a step takes so long that stages work one after the other. Nothing else may go on in `box`."""
    par = 0.0  # made once: both schedules leave their stages idle for as long
    for name, schedule in (("GPipe", gpipe(STAGES, MICROBATCHES)), ("1F1B", one_f_one_b(STAGES, MICROBATCHES))):
        case = PipelinedStep(schedule, EXAMPLES)
        box.reset()
        start = box.now
        case.run(answer)
        got = box.synchronize() - start
        par = par or _par(box, schedule)
        if got > SLOWER * par:
            raise Wrong(
                f"{name} with {STAGES} stages and {MICROBATCHES} micro-batches to take about {1000 * par:.0f} ms",
                f"{1000 * got:.0f} ms: stages hardly work at the same time",
                "A GPU works through what it is given in that order, copies too. What is copied late, or given out "
                "late, waits behind work that could wait itself: run each action as soon as its input is there, and "
                "send on at once what it returns (out.detach().to(...), and the gradient of what it was given).",
            )


def _par(box: Box, schedule: Schedule) -> float:
    """Seconds of the library's own step."""
    case = PipelinedStep(schedule, EXAMPLES)
    model = split(nn.Sequential(*case.stages), [1] * STAGES, case.devices)
    box.reset()
    start = box.now
    pipeline_step(model, schedule, *case.given, F.mse_loss)
    return box.synchronize() - start


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Raise Wrong in whoever starts a thread. The devices are known to the thread that runs the check only."""

    def refuse(self: threading.Thread, *args: Any) -> None:
        why = (
            "GPUs work on while Python goes on, so one thread gives out the work of all stages, and they overlap: "
            "go round the stages, and run each next action whose input is there."
        )
        raise Wrong("pipeline_step in one thread", "a thread was started", why)

    with patch.object(threading.Thread, "start", refuse):
        yield
