"""Batch normalisation over the whole global batch: each rank's count, mean and variance are combined."""

from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from mpcourse.collectives import allreduce
from mpcourse.data_parallel.communicator import Communicator
from mpcourse.data_parallel.host_staging import on_host, readable_by_mpi
from mpcourse.virtual import mpi_of


class SyncBatchNorm(_BatchNorm):
    """Batch norm whose statistics, in training, are those of all ranks' examples together. All ranks run it alike.

    num_features: channels.
    communicator: its ranks' examples are normalised together.
    options: those of torch's batch norm: eps, momentum, affine, track_running_stats.
    x: its input, (batch, channels, ...), floating point.

    Batches may differ in length, and be empty on some ranks. Ranks are weighted by their counts, because a mean of
    means is the mean of all only where counts are equal. In evaluation it works as torch's own.
    Raises ValueError, on every rank, where all ranks together have fewer than two values per channel.
    """

    def __init__(self, num_features: int, communicator: Communicator, **options: Any) -> None:
        super().__init__(num_features, **options)
        self.communicator = communicator

    def _check_input_dim(self, x: torch.Tensor) -> None:
        if x.dim() < 2:
            raise ValueError(f"batch norm takes (batch, channels, ...), not {tuple(x.shape)}")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(x)
        if not self.training:
            return super().forward(x)
        count, mean, variance = _statistics(self.communicator, x.detach())
        if count < 2:
            raise ValueError("batch norm needs more than one value a channel, on all ranks together")
        if self.running_mean is not None:
            self._track(mean, variance * count / (count - 1))
        weight = torch.ones_like(mean) if self.weight is None else self.weight
        bias = torch.zeros_like(mean) if self.bias is None else self.bias
        return _Normalise.apply(x, weight, bias, mean, (variance + self.eps).rsqrt(), count, self.communicator)

    def _track(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        assert self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None
        with torch.no_grad():
            self.num_batches_tracked += 1
            share = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
            self.running_var.lerp_(variance.to(self.running_var.dtype), share)


def convert_batch_norm(model: nn.Module, communicator: Communicator) -> nn.Module:
    """Replace each batch norm of `model` by a SyncBatchNorm with the same parameters and statistics; return the model.

    model: changed in place. If it is itself a batch norm, a new module is returned.
    communicator: its ranks' examples are normalised together. No message is sent, so any rank may call this.
    """
    synced: dict[nn.Module, SyncBatchNorm] = {}  # a module under two names is replaced by one
    for module in list(model.modules()):
        for name, child in module._modules.items():  # named_children omits a child's second name
            if isinstance(child, _BatchNorm) and not isinstance(child, SyncBatchNorm):
                if child not in synced:
                    synced[child] = _synced(child, communicator)
                setattr(module, name, synced[child])
    return _synced(model, communicator) if isinstance(model, _BatchNorm) else model


def _synced(norm: _BatchNorm, communicator: Communicator) -> SyncBatchNorm:
    if isinstance(norm, SyncBatchNorm):
        return norm
    made = SyncBatchNorm(
        norm.num_features, communicator, eps=norm.eps, momentum=norm.momentum, affine=norm.affine,
        track_running_stats=norm.track_running_stats,
    )  # fmt: skip
    made.training, made.weight, made.bias = norm.training, norm.weight, norm.bias
    made.running_mean, made.running_var = norm.running_mean, norm.running_var
    made.num_batches_tracked = norm.num_batches_tracked
    return made


def _statistics(communicator: Communicator, x: torch.Tensor) -> tuple[int, torch.Tensor, torch.Tensor]:
    """Return each channel's count over all ranks, mean and (biased) variance (Chan, Golub and LeVeque 1979).

    Sums of squares would lose small differences between large numbers; deviations from each rank's own mean do not.
    """
    channels = x.transpose(0, 1).reshape(x.shape[1], -1).to(torch.promote_types(x.dtype, torch.float32))
    count = channels.shape[1]
    # Each rank fills its own row, so the sum over ranks holds all rows.
    rows = channels.new_zeros(communicator.size, 2 * len(channels) + 1)
    if count:
        mean = channels.mean(1)
        rows[communicator.rank] = torch.cat(
            [rows.new_tensor([count]), mean, (channels - mean[:, None]).square().sum(1)]
        )
    _sum(communicator, rows)
    counts, (means, deviations) = rows[:, :1], rows[:, 1:].chunk(2, 1)
    total = counts.sum()
    mean = (counts * means).sum(0) / total
    variance = (deviations + counts * (means - mean).square()).sum(0) / total
    return int(total), mean, variance


def _sum(communicator: Communicator, x: torch.Tensor) -> None:
    communicator.exchange("normalises batches")
    if readable_by_mpi(communicator.comm, x):
        communicator.comm.Allreduce(mpi_of(communicator.comm).IN_PLACE, x)
        return
    with on_host(x) as buffer:
        allreduce(communicator.comm, buffer)


class _Normalise(torch.autograd.Function):
    """(x - mean) / deviation * weight + bias; its gradient accounts for all ranks' x in mean and deviation."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, mean: torch.Tensor, inverse: torch.Tensor,
        count: int, communicator: Communicator,
    ) -> torch.Tensor:  # fmt: skip
        shape = [1, -1] + [1] * (x.dim() - 2)
        normal = (x - mean.view(shape)) * inverse.view(shape)
        ctx.save_for_backward(normal, weight, inverse)
        ctx.count, ctx.communicator, ctx.shape = count, communicator, shape
        return (normal * weight.view(shape) + bias.view(shape)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        normal, weight, inverse = ctx.saved_tensors
        dy, shape = gradients[0].to(normal.dtype), ctx.shape
        others = [d for d in range(dy.dim()) if d != 1]
        own = torch.stack([dy.sum(others), (dy * normal).sum(others)])
        whole = own.clone()
        _sum(ctx.communicator, whole)
        along, across = (whole / ctx.count).unbind()
        dx = (weight * inverse).view(shape) * (dy - along.view(shape) - normal * across.view(shape))
        # Weight and bias get only this rank's part: the mean of gradients combines the parts.
        return dx.to(gradients[0].dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None, None, None
