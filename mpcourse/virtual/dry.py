"""Shapes of results without data, where torch's own way to them is slow.

On meta tensors torch decomposes batch norm into twenty operations in Python, 4 ms a layer, and arange imports the
compiler, 2 s. Here only shapes are made.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from mpcourse.virtual import autocast, dropout

Tensor = torch.Tensor


def _batch_norm(x: Tensor, weight: Tensor | None, bias: Any, mean: Any, var: Any, training: bool, *rest: Any) -> tuple:
    channels = x.shape[1] if training else 0
    statistics = torch.promote_types(x.dtype, torch.float32)  # as CUDA, which computes them so
    return torch.empty_like(x), x.new_empty(channels, dtype=statistics), x.new_empty(channels, dtype=statistics)


def _batch_norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor | None, mean: Any, var: Any, save_mean: Any, save_var: Any, train: bool,
    eps: float, mask: list[bool],
) -> tuple:  # fmt: skip
    of_weight = (x if weight is None else weight).new_empty
    channels = x.shape[1]
    return (
        torch.empty_like(x) if mask[0] else None,
        of_weight(channels) if mask[1] else None,
        of_weight(channels) if mask[2] else None,
    )


def _arange(start: Any, end: Any = None, step: Any = 1, *, dtype: torch.dtype | None = None, **ignored: Any) -> Tensor:
    if end is None:
        start, end = 0, start
    if step == 0 or (end - start) / step < 0:
        torch.arange(start, end, step)  # says what is wrong
    if dtype is None:
        whole = all(isinstance(value, int) for value in (start, end, step))
        dtype = torch.int64 if whole else torch.get_default_dtype()
    return torch.empty(math.ceil((end - start) / step), dtype=dtype, device="meta")


def _pack(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    given = lengths.tolist()
    if min(given) < 1:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' <= 0")
    sizes = [sum(length > step for length in given) for step in range(given[0])]
    return x.new_empty(sum(given), *x.shape[2:]), torch.tensor(sizes, device="cpu")


SHAPES: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.native_batch_norm.default: _batch_norm,
    torch.ops.aten.native_batch_norm_backward.default: _batch_norm_backward,
    torch.ops.aten.arange.default: _arange,
    torch.ops.aten.arange.start: _arange,
    torch.ops.aten.arange.start_step: _arange,
    torch.ops.aten._pack_padded_sequence.default: _pack,
    **dropout.SHAPES,
}


_plain_attention = F.scaled_dot_product_attention


def attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """F.scaled_dot_product_attention as one operation that keeps no matrix of weights, which it is on GPUs.

    Of meta tensors torch would make many operations, and that matrix.
    """
    if torch.is_autocast_enabled("vgpu"):
        query, key, value, attn_mask = (
            autocast.cast(x, autocast.region_dtype()) for x in (query, key, value, attn_mask)
        )
    if query.dim() != 4 or enable_gqa:
        return _plain_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return op(query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale)[0]
