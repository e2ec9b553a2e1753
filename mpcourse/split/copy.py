"""A copy to another device that autograd sees: Chainer's `F.copy`, the one primitive that splitting a model needs."""

from typing import Any

import torch


class Copy(torch.autograd.Function):
    """The two directions of a copy, for autograd. Call `copy` instead."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, device: torch.device) -> torch.Tensor:
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0].to(ctx.source), None


def copy(x: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """Copy `x` to `device`. Its gradient comes back to the device of `x`; `x` itself is returned where it is there.

    x: any shape and dtype.
    device: a real or virtual one, or the CPU.

    This does what `x.to(device)` does, with the way back written out.
    """
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)
