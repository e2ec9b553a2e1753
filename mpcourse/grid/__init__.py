"""Several ways to cut one training at once: data x pipeline x tensor parallelism on a grid of ranks.

Read `grid.py` first, then `tensor_parallel.py`, `clip.py` and `training.py`.

    from mpcourse.grid import Grid
    from mpcourse.virtual import run

    grid = run(lambda comm: Grid(comm, data=2, pipeline=2, tensor=2), 8).results[0]
    print(grid.groups("tensor"))  # which ranks share a communicator along that axis
"""

from mpcourse.grid.clip import clip_grad_norm, global_norm
from mpcourse.grid.grid import AXES, ORDER, Grid
from mpcourse.grid.tensor_parallel import ParallelAttention, ParallelMLP, copy_in, sharded_parameters, sum_out
from mpcourse.grid.traffic import AxisTraffic, traffic_by_axis
from mpcourse.grid.training import GridTrainer, StepResult
from mpcourse.grid.transformer import Shape, stage, transformer

__all__ = [
    "AXES",
    "ORDER",
    "AxisTraffic",
    "Grid",
    "GridTrainer",
    "ParallelAttention",
    "ParallelMLP",
    "Shape",
    "StepResult",
    "clip_grad_norm",
    "copy_in",
    "global_norm",
    "sharded_parameters",
    "stage",
    "sum_out",
    "traffic_by_axis",
    "transformer",
]
