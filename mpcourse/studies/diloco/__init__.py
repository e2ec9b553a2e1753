"""DiLoCo beside data parallelism and averaging: what was trained, and what came of it."""

from mpcourse.studies.diloco.shipped import Trained, shipped_diloco
from mpcourse.studies.diloco.study import ALONE, LONGER, OUTERS, PERIODS, REPLICAS, SEEDS, SHAPE, STEPS, TOGETHER

__all__ = [
    "ALONE",
    "LONGER",
    "OUTERS",
    "PERIODS",
    "REPLICAS",
    "SEEDS",
    "SHAPE",
    "STEPS",
    "TOGETHER",
    "Trained",
    "shipped_diloco",
]
