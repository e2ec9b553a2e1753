"""What `mpcourse bench twins` runs on each rank."""

import copy
import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from mpcourse.course.bench.over_ranks import rank_main, take_turns
from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator
from mpcourse.pipeline import one_f_one_b
from mpcourse.pipeline.ranks import PipelineRank
from mpcourse.tensor_parallel import ParallelMLP

comm = MPI.COMM_WORLD
STEPS = 6  # of a run
Step = Callable[[], object]
Side = tuple[nn.Module, Step]


def _block(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


def _sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), 0.01)


def _stepping(module: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> Step:
    def step() -> None:
        optimizer.zero_grad()
        F.mse_loss(module(x), y).backward()
        optimizer.step()

    return step


def _data_parallel(width: int, x: torch.Tensor, y: torch.Tensor) -> dict[str, Side]:
    mine, x, y = _block(width), x.chunk(comm.size)[comm.rank], y.chunk(comm.size)[comm.rank]
    twin = DistributedDataParallel(copy.deepcopy(mine))
    optimizer = MultiNodeOptimizer(_sgd(mine), create_communicator("bucketed", comm), model=mine)
    return {"ours": (mine, _stepping(mine, optimizer, x, y)), "torch": (twin, _stepping(twin, _sgd(twin), x, y))}


def _tensor_parallel(width: int, x: torch.Tensor, y: torch.Tensor) -> dict[str, Side]:
    twin = _block(width)
    mine = ParallelMLP(comm, twin[0], twin[2])  # type: ignore[arg-type]
    mesh = init_device_mesh("cpu", (comm.size,))
    parallelize_module(twin, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return {"ours": (mine, _stepping(mine, _sgd(mine), x, y)), "torch": (twin, _stepping(twin, _sgd(twin), x, y))}


def _pipeline(width: int, x: torch.Tensor, y: torch.Tensor) -> dict[str, Side]:
    mine = _block(width)
    twin = copy.deepcopy(mine)
    ours = PipelineRank(comm, mine, one_f_one_b(comm.size, 4), F.mse_loss)
    theirs = Schedule1F1B(PipelineStage(twin, comm.rank, comm.size, torch.device("cpu")), 4, loss_fn=F.mse_loss)
    optimizers = _sgd(mine), _sgd(twin)

    def our_step() -> None:
        optimizers[0].zero_grad()
        ours.step(x, y)
        optimizers[0].step()

    def their_step() -> None:
        optimizers[1].zero_grad()
        if comm.rank == 0:
            theirs.step(x)
        elif comm.rank == comm.size - 1:
            theirs.step(target=y, losses=[])
        else:
            theirs.step()
        optimizers[1].step()

    return {"ours": (mine, our_step), "torch": (twin, their_step)}


WAYS = {"data parallel": _data_parallel, "tensor parallel": _tensor_parallel, "pipeline": _pipeline}


def _measure(case: list) -> dict:
    way, width, batch, runs = case
    torch.manual_seed(comm.rank if way == "pipeline" else 0)  # a stage of its own, or the same model on all ranks
    x, y = torch.randn(2, batch, width, generator=torch.Generator().manual_seed(7))
    sides = WAYS[way](width, x, y)
    seconds = take_turns(comm, {side: step for side, (_, step) in sides.items()}, runs, ["torch"], STEPS)
    return {
        "case": case,
        "seconds": {side: [statistics.median(run) for run in of] for side, of in seconds.items()},
        "ratios": [
            statistics.median(theirs) / statistics.median(ours)
            for ours, theirs in zip(seconds["ours"], seconds["torch"], strict=True)
        ],
        "difference": comm.allreduce(_difference(sides["ours"][0], sides["torch"][0]), op=MPI.MAX),
    }


def _difference(ours: nn.Module, theirs: nn.Module) -> float:
    """Return the relative difference of both sides' sums of squared parameters, over all ranks."""
    held = [p.to_local() if isinstance(p, DTensor) else p for p in theirs.parameters()]
    mine = sum(float(p.detach().double().square().sum()) for p in ours.parameters())
    other = sum(float(p.detach().double().square().sum()) for p in held)
    return abs(mine - other) / other


if __name__ == "__main__":
    rank_main(_measure)
