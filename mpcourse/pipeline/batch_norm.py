"""Batch norm under micro-batches: each is normalised by itself, while running statistics can be the whole batch's."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.modules.batchnorm import _BatchNorm


class DeferredBatchNorm(_BatchNorm):
    """Batch norm that gathers statistics over micro-batches. `commit` updates the running statistics once.

    num_features: channels of its input, (batch, channels, ...).
    eps: added to variances.
    momentum: how much of a batch goes into the running statistics; None: they are means over all batches.
    affine: it has a weight and a bias.
    track_running_stats: it has running statistics.

    In training each micro-batch is normalised by its own mean and variance, because a pipeline cannot know the batch's
    before its last micro-batch. The gathered statistics are those of the whole batch, to rounding (merged as by Chan et
    al., 1979). So evaluation works as if the batch had not been cut; training does not. torchgpipe's layer of this name
    does the same. Parameters and state dict are those of the BatchNorm1d, 2d or 3d that it replaces.
    """

    # Of the batch so far: mean, sum of squared deviations, and number of elements of each channel. A step that computes
    # a forward again works on copies of buffers and restores numbers, so that these do not count it twice.
    batch_mean: torch.Tensor
    batch_squares: torch.Tensor
    batch_count: int

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        for name in ("batch_mean", "batch_squares"):
            self.register_buffer(name, torch.zeros(num_features), persistent=False)
        self.batch_count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not (self.training and self.track_running_stats):
            return super().forward(x)
        self._gather(x.detach())
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)

    @torch.no_grad()
    def _gather(self, x: torch.Tensor) -> None:
        dims = [d for d in range(x.dim()) if d != 1]
        variance, mean = torch.var_mean(x, dims, correction=0)
        count = x.numel() // x.shape[1]
        total = self.batch_count + count
        away = mean - self.batch_mean
        self.batch_squares += variance * count + away.square() * (self.batch_count * count / total)
        self.batch_mean += away * (count / total)
        self.batch_count += count

    @torch.no_grad()
    def commit(self) -> None:
        """Update the running statistics by the micro-batches since the last call; change nothing if there were none."""
        if not self.batch_count or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        factor = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(self.batch_mean, factor)
        self.running_var.lerp_(self.batch_squares / max(1, self.batch_count - 1), factor)  # unbiased, as in torch
        self.batch_mean.zero_()
        self.batch_squares.zero_()
        self.batch_count = 0

    def _check_input_dim(self, x: torch.Tensor) -> None:
        if x.dim() < 2:
            raise ValueError(f"batch norm takes (batch, channels, ...), not {tuple(x.shape)}")


def defer_batch_norm(model: nn.Module) -> nn.Module:
    """Replace each BatchNorm1d, 2d and 3d by a `DeferredBatchNorm` with the same parameters and statistics.

    model: changed in place. If it is itself a batch norm, a new module is returned.

    A pipeline's step calls `commit` at its end.
    """
    if isinstance(model, _BatchNorm) and type(model) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
        made = DeferredBatchNorm(model.num_features, model.eps, model.momentum, model.affine, model.track_running_stats)
        made._parameters.update(model._parameters)
        made._buffers.update(model._buffers)
        like = next((t for t in [*model.parameters(), *model.buffers()]), made.batch_mean)
        made.batch_mean, made.batch_squares = torch.zeros_like(like), torch.zeros_like(like)
        return made.train(model.training)
    for name, child in model.named_children():
        setattr(model, name, defer_batch_norm(child))
    return model
