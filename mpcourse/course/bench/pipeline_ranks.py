"""What `mpcourse bench pipeline` runs on each rank: a pipeline of ours and torch's, step by step in turns.

Prints, on rank 0, one line of JSON.
"""

import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from mpcourse.course.bench.over_ranks import rank_main, take_turns
from mpcourse.course.bench.pipeline import PipelineCase
from mpcourse.pipeline import Execution, gpipe, measured_costs, one_f_one_b, replay
from mpcourse.pipeline.ranks import PipelineRank

comm = MPI.COMM_WORLD
SCHEDULES = {"gpipe": (gpipe, ScheduleGPipe), "1f1b": (one_f_one_b, Schedule1F1B)}
Step = Callable[[], None]


def _measure(fields: list) -> dict:
    case = PipelineCase(*fields)
    ours, theirs = SCHEDULES[case.schedule]
    torch.manual_seed(comm.rank)
    layers = [nn.Sequential(nn.Linear(case.width, case.width), nn.ReLU()) for _ in range(case.layers)]
    stage = nn.Sequential(*layers, *([Metronome(case.ticks)] if case.ticks else []))
    twin = copy.deepcopy(stage)
    generator = torch.Generator().manual_seed(7)
    x, y = torch.randn(2, case.batch, case.width, generator=generator)
    # For a bubble all stages and micro-batches are to cost the same. So the first stage also computes its input's
    # gradient, which is not used, and the first micro-batch adds to gradients as all others do.
    x.requires_grad_(case.measures_bubble)
    mine = PipelineRank(comm, stage, ours(comm.size, case.m), F.mse_loss)
    schedule = theirs(PipelineStage(twin, comm.rank, comm.size, torch.device("cpu")), case.m, loss_fn=F.mse_loss)

    def torch_step() -> None:
        if comm.rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=y, losses=[]) if comm.rank == comm.size - 1 else schedule.step()

    executions: list[Execution] = []

    def our_step() -> None:
        _, ran = mine.timed_step(x, y)
        if case.measures_bubble and (execution := mine.gather(ran)):
            executions.append(execution)

    steps: dict[str, Step] = {"ours": our_step} if case.measures_bubble else {"ours": our_step, "torch": torch_step}

    def clear(side: str) -> None:
        (twin if side == "torch" else stage).zero_grad(set_to_none=not case.measures_bubble)

    seconds = take_turns(comm, steps, case.runs, ["torch"], case.steps, clear)
    differing = 0.0
    if not case.measures_bubble:
        pairs = zip(stage.parameters(), twin.parameters(), strict=True)
        differing = max(float((a.grad - b.grad).abs().max() / b.grad.abs().max()) for a, b in pairs)  # type: ignore
    return {
        "case": case,
        "seconds": {side: [statistics.median(run) for run in runs] for side, runs in seconds.items()},
        "ratios": [
            statistics.median(b / a for a, b in zip(*pair, strict=True))
            for pair in zip(seconds["ours"], seconds.get("torch", []), strict=False)
        ],
        "difference": comm.allreduce(differing, op=MPI.MAX),
        "bubbles": [_bubbles(e) for e in executions[case.steps :]],
    }


class Metronome(nn.Module):
    """Passes x on. forward keeps the core busy for `seconds`, backward for twice as long, by the clock."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Tick.apply(x, self.seconds)


class _Tick(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        _busy(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        _busy(2 * ctx.seconds)
        return gradients[0], None


def _busy(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def _bubbles(ran: Execution) -> tuple[float, float, float]:
    """Return the bubble, the bubble of a replay with these stages' average times, and how unlike the stages are."""
    planned = replay([[t.action for t in row] for row in ran.stages], measured_costs([ran]))
    return ran.bubble, planned.bubble, max(ran.busy) / min(ran.busy) - 1


if __name__ == "__main__":
    rank_main(_measure)
