"""Pipelines: a batch cut into micro-batches, so that no device waits for the whole of it."""

from mpcourse.pipeline.batch_norm import DeferredBatchNorm, defer_batch_norm
from mpcourse.pipeline.execution import Execution, Timed
from mpcourse.pipeline.local import Step, pipeline_step
from mpcourse.pipeline.replay import Costs, IllegalAction, measured_costs, replay
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

__all__ = [
    "SCHEDULES",
    "Action",
    "Costs",
    "DeferredBatchNorm",
    "Execution",
    "IllegalAction",
    "Schedule",
    "Step",
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
