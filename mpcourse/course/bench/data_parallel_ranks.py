"""What `mpcourse bench data-parallel` runs on each rank: the same steps, averaged by ours, by DDP and by no one.

Prints, on rank 0, one line of JSON.
"""

import copy
from collections.abc import Callable
from functools import partial

import torch
import torch._dynamo  # what torch.optim imports at its first use, in seconds
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mpcourse.course.bench.data_parallel import DataParallelCase, sides_of
from mpcourse.course.bench.over_ranks import rank_main, take_turns
from mpcourse.data_parallel import (
    DoubleBufferedOptimizer,
    MultiNodeOptimizer,
    create_communicator,
    fuse_weight_gradients,
)
from mpcourse.models import conv_net, mlp, transformer

comm = MPI.COMM_WORLD
MAKERS: dict[str, Callable[[], nn.Module]] = {"mlp": mlp, "conv": conv_net, "transformer": transformer}
RATE = 0.01


def _measure(fields: list) -> dict:
    case = DataParallelCase(*fields)
    torch.manual_seed(0)
    base = MAKERS[case.model]()
    torch.manual_seed(1 + comm.rank)
    x, y = torch.randn(case.batch, 1, 28, 28), torch.randint(10, (case.batch,))
    models = {side: copy.deepcopy(base) for side in sides_of(case.model)}

    def sgd(side: str) -> torch.optim.Optimizer:
        return torch.optim.SGD(models[side].parameters(), RATE)

    optimizers = {
        "alone": sgd("alone"),
        "in step": sgd("in step"),
        "flat": MultiNodeOptimizer(sgd("flat"), create_communicator("flat")),
        "bucketed": MultiNodeOptimizer(sgd("bucketed"), create_communicator("bucketed")),
        "double buffering": DoubleBufferedOptimizer(sgd("double buffering"), create_communicator("flat")),
        "DDP": sgd("DDP"),
    }
    if "fused" in models:
        assert fuse_weight_gradients(models["fused"])
        optimizers["fused"] = MultiNodeOptimizer(sgd("fused"), create_communicator("bucketed"))
    called = {**models, "DDP": DistributedDataParallel(models["DDP"], gradient_as_bucket_view=True)}

    def steps(side: str) -> None:
        for _ in range(case.steps):
            optimizers[side].zero_grad()
            F.cross_entropy(called[side](x), y).backward()
            if side == "in step":
                comm.Barrier()
            optimizers[side].step()

    turns = take_turns(comm, {side: partial(steps, side) for side in models}, case.runs, over_gloo=["DDP"])
    seconds = {side: [taken for (taken,) in runs] for side, runs in turns.items()}
    return {"case": case, "seconds": seconds, "difference": comm.allreduce(_apart(models), op=MPI.MAX)}


def _apart(models: dict[str, nn.Module]) -> float:
    """Return the largest difference between our parameters and DDP's, divided by DDP's largest parameter."""
    rows = {side: torch.cat([p.detach().flatten() for p in model.parameters()]) for side, model in models.items()}
    wanted = rows["DDP"]
    same = [rows[side] for side in ("flat", "bucketed", "fused") if side in rows]
    return max(float((row - wanted).abs().max() / wanted.abs().max()) for row in same)


if __name__ == "__main__":
    rank_main(_measure)
