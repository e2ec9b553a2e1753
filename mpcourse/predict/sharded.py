"""One of many ranks that train by ZeRO: its own optimizer, which sends nothing and counts what it would send."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from mpcourse.common.errors import UserError
from mpcourse.predict.place import children
from mpcourse.zero import AloneComm, ShardedGradients, ShardedOptimizer, ShardedParameters
from mpcourse.zero.model_states import STAGES

MOST_RANKS = 1_000_000


def check_sharding(stage: int, ranks: int, gpus: int) -> None:
    """Refuse what is impossible.

    stage: of ZeRO, 0 to 3.
    ranks: number of ranks that share.
    gpus: number of GPUs over which the model is cut.
    Raises UserError.
    """
    if stage not in STAGES:
        raise UserError(f"--zero {stage}: ZeRO has the stages 1, 2 and 3, and 0 is none")
    if not 1 <= ranks <= MOST_RANKS or (ranks > 1 and stage == 0):
        raise UserError(f"--ranks {ranks}: how many share by --zero 1, 2 or 3; 1 to {MOST_RANKS}")
    if stage and gpus > 1:
        raise UserError(f"--zero {stage} shards a model that each rank has on one GPU: leave --gpus {gpus} out")


def sharded(
    make_optimizer: Callable[..., torch.optim.Optimizer], model: nn.Module, stage: int, ranks: int
) -> ShardedOptimizer:
    """Make the optimizer of rank 0 of many.

    make_optimizer: makes a torch optimizer of groups of parameters.
    model: on a virtual GPU, without data.
    stage: of ZeRO, 1 to 3.
    ranks: number of ranks that share.

    A half-precision model has float32 masters. In stage 3 the model's children are the layers that are gathered.
    Raises UserError for parameters of the model itself in stage 3.
    """
    comm: Any = AloneComm(ranks)
    try:
        if stage == 3:
            layers = list(children(model).values())
            return ShardedParameters(make_optimizer, model, comm, layers, master=torch.float32)
        kind = ShardedOptimizer if stage == 1 else ShardedGradients
        return kind(make_optimizer, model, comm, master=torch.float32)
    except ValueError as error:
        raise UserError(f"--zero {stage}: {error}") from None
