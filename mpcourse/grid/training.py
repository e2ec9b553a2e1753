"""A training step on a grid: a pipeline of tensor-parallel stages, replicated along data, context and expert axes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from mpcourse.collectives.tensors import sum_gradients
from mpcourse.data_parallel import create_communicator, spread_not_finite
from mpcourse.data_parallel.parameters import optimizer_tensors
from mpcourse.experts.mixture import expert_parameters
from mpcourse.grid.clip import clip_grad_norm
from mpcourse.grid.grid import Grid
from mpcourse.pipeline.ranks import PipelineRank
from mpcourse.pipeline.schedule import Schedule
from mpcourse.pipeline.stage import Loss
from mpcourse.tensor_parallel import sharded_parameters


@dataclass(frozen=True)
class StepResult:
    """The result of a step.

    loss: of the batch, on the pipeline's last stage, None elsewhere.
    norm: of all gradients, before clipping; None without clipping.
    """

    loss: float | None
    norm: float | None


class GridTrainer:
    """This rank's part of a training on a grid. All ranks of the grid make one together.

    grid: of all ranks.
    part: this rank's stage of the pipeline, and of that stage this rank's share along the tensor axis.
    schedule: of the pipeline, a list of actions for each stage.
    loss: of (output, target); returns the mean over examples. With a context axis, it returns the mean over the tokens
    of all its ranks, and backward the gradients of this rank's part, as `mpcourse.context_parallel.mean_token_loss`.
    make_optimizer: takes a list of parameters.
    tied: this rank's tied parameters, each under a name that is the same on all stages that hold a copy.
    clip: the largest global norm of gradients; None: no clipping.
    scaler: torch's, one on each rank, made alike; all skip the same steps. None: the loss is not scaled.

    A step consists of: forward and backward of the micro-batches along the pipeline, with all-reduces along the tensor
    axis within each layer; the mean of gradients along the data and the expert axis, and their sum along the context
    axis; clipping by the norm of all gradients; the optimizer, on each rank by itself. Replicas stay equal, because
    they begin equal (part is made from the same seed) and get the same gradients. With an expert axis, experts differ
    along it: their gradients are averaged as `mpcourse.experts.average_gradients` does.
    Raises ValueError where the parts or the optimizers' options of replicas differ.
    """

    def __init__(
        self,
        grid: Grid,
        part: nn.Module,
        schedule: Schedule,
        loss: Loss,
        make_optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        *,
        tied: dict[str, nn.Parameter] | None = None,
        clip: float | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        self.grid, self.part, self.loss, self.clip = grid, part, loss, clip
        self.scaler = scaler or torch.amp.GradScaler(enabled=False)
        self.scale = torch.ones(())
        self.pipeline = PipelineRank(grid.pipeline, part, schedule, self._scaled_loss, tied=tied)
        self.replicas = create_communicator("flat", grid.replicas)
        self.parameters = [p for p in part.parameters() if p.requires_grad]
        self.optimizer = make_optimizer(self.parameters)
        self.experts = expert_parameters(part) if grid.expert.size > 1 else []
        kept = {id(p) for p in self.experts}
        self.dense = {name: p for name, p in part.named_parameters() if id(p) not in kept}
        self.replicas.check_equal(self.dense, optimizer_tensors(self.optimizer, {}), "compares replicas")
        self.sharded = sharded_parameters(part)
        # A tied parameter's copies are equal, and so are their gradients: the first stage counts it.
        self.counted_elsewhere = list((tied or {}).values()) if grid.pipeline.rank > 0 else []

    def step(self, x: torch.Tensor, target: torch.Tensor) -> StepResult:
        """Run one step with this replica's share of the batch. All ranks call it.

        x: (batch / data, ...); only the pipeline's first stage uses it, and others may pass anything.
        target: (batch / data, ...); only the pipeline's last stage uses it, and others may pass anything.
        Returns this replica's loss, and the norm.
        """
        self.optimizer.zero_grad()
        self.scale = self.scaler.scale(torch.ones((), device=self.pipeline.device))  # on stages without a loss, too
        loss = self.pipeline.step(x, target)
        self.replicas.mean_gradients(self.dense, finite=not self.scaler.is_enabled())
        # Experts have met the tokens of all ranks of the expert axis: their sums are divided by all replicas, too.
        sum_gradients(self.grid.expert_replicas, self.experts, self.grid.replicas.size)
        if self.scaler.is_enabled():
            spread_not_finite(self.grid.comm, self.parameters)
            self.scaler.unscale_(self.optimizer)
        norm = None
        if self.clip is not None:
            norm = clip_grad_norm(
                self.grid, self.parameters, self.clip, self.sharded, self.counted_elsewhere, self.experts
            )
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return StepResult(None if loss is None else float(loss / self.scale / self.grid.context.size), norm)

    def _scaled_loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        # The mean over replicas divides by the ranks of the context axis, too, whose gradients are added up.
        return self.loss(output, target) * self.scale * self.grid.context.size
