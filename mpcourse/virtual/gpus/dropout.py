"""Dropout as CUDA does it: one kernel, which keeps a mask of one byte per element (aten/src/ATen/native/Dropout.cpp).

CUDA does not fuse dropout in place, dropout of whole channels, p = 0, p = 1, and evaluation; nor does this module.
"""

from collections.abc import Callable
from typing import Any

import torch

from mpcourse.virtual.gpus.cost import in_parts

Tensor = torch.Tensor


def dropout(mode: Any, func: Any, x: Tensor, p: float, train: bool) -> Tensor:
    """Do aten::dropout."""
    fused = train and 0 < p < 1 and x.numel() > 0
    return torch.ops.aten.native_dropout.default(x, p, True)[0] if fused else in_parts(func, x, p, train)


# The values are those of the CPU's dropout, bit by bit: it multiplies by noise, which is 0 or 1 / (1 - p).


def _values(x: Tensor, p: float, train: bool | None = True) -> tuple[Tensor, Tensor]:
    if train is False or not 0 < p < 1:
        return torch.ops.aten.native_dropout.default(x, p, train)
    noise = torch.empty_like(x).bernoulli_(1 - p)
    mask = noise.bool()
    return x * noise.div_(1 - p), mask


def _backward_values(gradient: Tensor, mask: Tensor, scale: float) -> Tensor:
    if scale == 0:
        return torch.ops.aten.native_dropout_backward.default(gradient, mask, scale)
    kept = 1 - round(1 - 1 / scale, 12)  # 1 - p to the last bit, if p has no more than 12 digits
    return gradient * mask.to(gradient.dtype).div_(kept)


def _shapes(x: Tensor, p: float, train: bool | None = True) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


def _backward_shape(gradient: Tensor, mask: Tensor, scale: float) -> Tensor:
    return torch.empty_like(gradient)


VALUES: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.native_dropout.default: _values,
    torch.ops.aten.native_dropout_backward.default: _backward_values,
}
SHAPES: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.native_dropout.default: _shapes,
    torch.ops.aten.native_dropout_backward.default: _backward_shape,
}
