"""Ghost batch norm: a large batch is normalised in small parts, with the noise of a small batch."""

from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm


class GhostBatchNorm(_BatchNorm):
    """Batch norm over virtual batches (Hoffer et al., "Train longer, generalize better", 2017, algorithm 1).

    num_features: channels.
    ghost_size: examples of a virtual batch.
    options: those of torch's batch norm: eps, momentum, affine, track_running_stats.
    x: its input, (batch, channels, ...), floating point.

    In training, each part of the batch, in the order of its examples, is normalised by its own mean and variance, and
    running statistics take in one part after the other. The last part holds what is left. If that is a single value per
    channel, which has no variance, it joins the part before it. In evaluation this is torch's own batch norm. A batch
    no larger than `ghost_size` is normalised as in torch.
    Raises ValueError for a ghost_size below 1, and in a step for fewer than two dimensions.
    """

    def __init__(self, num_features: int, ghost_size: int, **options: Any) -> None:
        if ghost_size < 1:
            raise ValueError(f"a virtual batch has 1 example or more: got ghost_size={ghost_size}")
        super().__init__(num_features, **options)
        self.ghost_size = ghost_size

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, ghost_size={self.ghost_size}"

    def _check_input_dim(self, x: torch.Tensor) -> None:
        if x.dim() < 2:
            raise ValueError(f"batch norm takes (batch, channels, ...), not {tuple(x.shape)}")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(x)
        if not self.training or len(x) <= self.ghost_size:
            return super().forward(x)
        sizes = [len(part) for part in x.split(self.ghost_size)]
        if sizes[-1] * x[0, 0].numel() == 1:
            sizes[-2:] = [sizes[-2] + 1]
        return torch.cat([super(GhostBatchNorm, self).forward(part) for part in x.split(sizes)])
