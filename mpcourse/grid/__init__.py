"""Several ways to cut one training at once: data x pipeline x tensor parallelism on a grid of ranks.

Read `grid.py` first, then `clip.py` and `training.py`. `mpcourse.tensor_parallel` has the layers.

    from mpcourse.grid import Grid
    from mpcourse.virtual import run

    grid = run(lambda comm: Grid(comm, data=2, pipeline=2, tensor=2), 8).results[0]
    print(grid.groups("tensor"))  # which ranks share a communicator along that axis
"""

from mpcourse.grid.clip import clip_grad_norm, global_norm
from mpcourse.grid.grid import AXES, ORDER, Grid
from mpcourse.grid.traffic import AxisTraffic, traffic_by_axis
from mpcourse.grid.training import GridTrainer, StepResult
from mpcourse.grid.transformer import Shape, stage, transformer

__all__ = [
    "AXES",
    "ORDER",
    "AxisTraffic",
    "Grid",
    "GridTrainer",
    "Shape",
    "StepResult",
    "clip_grad_norm",
    "global_norm",
    "stage",
    "traffic_by_axis",
    "transformer",
]
