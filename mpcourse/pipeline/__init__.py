"""Pipelines: a batch is cut into micro-batches, so that no device waits for the whole batch.

    from mpcourse.pipeline import gpipe, one_f_one_b, replay

    for schedule in (gpipe(4, 8), one_f_one_b(4, 8)):  # stages, micro-batches
        done = replay(schedule)
        print(done.makespan, done.bubble, done.peak)  # units of time; the share that is idle; micro-batches held

Schedules and their replay import numpy alone. The first use of a name that computes imports torch, which takes a
second.
"""

import importlib
from typing import TYPE_CHECKING, Any

from mpcourse.pipeline.costs import Costs, measured_costs
from mpcourse.pipeline.execution import Execution, Timed
from mpcourse.pipeline.replay import IllegalAction, replay
from mpcourse.pipeline.schedule import (
    SCHEDULES,
    Action,
    Schedule,
    gpipe,
    interleaved_one_f_one_b,
    naive,
    one_f_one_b,
    zero_bubble_h1,
)

if TYPE_CHECKING:
    from mpcourse.pipeline.batch_norm import DeferredBatchNorm, defer_batch_norm
    from mpcourse.pipeline.local import PipelineStep, pipeline_step

_COMPUTING = {
    "DeferredBatchNorm": "mpcourse.pipeline.batch_norm",
    "defer_batch_norm": "mpcourse.pipeline.batch_norm",
    "PipelineStep": "mpcourse.pipeline.local",
    "pipeline_step": "mpcourse.pipeline.local",
}


def __getattr__(name: str) -> Any:
    if name not in _COMPUTING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(importlib.import_module(_COMPUTING[name]), name)
    return globals()[name]


__all__ = [
    "SCHEDULES",
    "Action",
    "Costs",
    "DeferredBatchNorm",
    "Execution",
    "IllegalAction",
    "PipelineStep",
    "Schedule",
    "Timed",
    "defer_batch_norm",
    "gpipe",
    "interleaved_one_f_one_b",
    "measured_costs",
    "naive",
    "one_f_one_b",
    "pipeline_step",
    "replay",
    "zero_bubble_h1",
]
