"""The fast path of nn.TransformerEncoderLayer and nn.MultiheadAttention in evaluation, as CUDA takes it.

torch runs each as one C++ function. Its kernels and memory are CUDA's own if the tensors are on a GPU
(aten/src/ATen/native/transformers/transformer.cpp and cuda/attention.cu). The functions below call the same kernels on
tensors without data, and so count them; the values come from that C++ function on the CPU.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.virtual.gpus.box import TAG, box_here
from mpcourse.virtual.gpus.counted import without_data
from mpcourse.virtual.gpus.dispatch import DispatchMode
from mpcourse.virtual.gpus.kernels import unseen
from mpcourse.virtual.gpus.nested import tensors_in

Tensor = torch.Tensor


def _attend(
    x: Tensor, heads: int, qkv_weight: Tensor, qkv_bias: Tensor, out_weight: Tensor, out_bias: Tensor,
    masked: bool, wants_weights: bool, averaged: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Do native_multi_head_attention_cuda: (batch, n, width) -> the same, and the weights if they are wanted."""
    batch, n, width = x.shape
    if width // heads % 8 == 0 and not masked and not wants_weights:
        qkv = F.linear(x, qkv_weight, qkv_bias)
        q, k, v = (part.view(batch, n, heads, -1).transpose(1, 2) for part in qkv.chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, n, width)
        return F.linear(y, out_weight, out_bias), None
    qkv = F.linear(x, qkv_weight)
    qkv = qkv.view(batch, n, 3, heads, -1).permute(2, 0, 3, 1, 4).contiguous()  # with the bias and the scale
    q, k, v = (part.flatten(0, 1) for part in qkv)
    weights = torch.bmm(q, k.mT)
    weights = F.softmax(weights, -1) if masked else weights.mul_(1)  # without a mask it is in place
    torch.bmm(weights, v, out=q)
    if not wants_weights:
        del weights
    y = q.view(batch, heads, n, -1).transpose(1, 2).reshape(batch, n, width)
    y = F.linear(y, out_weight, out_bias)
    if not wants_weights:
        return y, None
    weights = weights.view(batch, heads, n, n)
    return y, weights.sum(1).div_(heads) if averaged else weights


def _multi_head_attention(
    query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor,
    out_weight: Tensor, out_bias: Tensor, mask: Tensor | None = None, wants_weights: bool = True,
    averaged: bool = True, mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    return _attend(query, heads, qkv_weight, qkv_bias, out_weight, out_bias, mask is not None, wants_weights, averaged)


def _encoder_layer(
    src: Tensor, width: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor, out_weight: Tensor, out_bias: Tensor,
    gelu: bool, norm_first: bool, eps: float, scale1: Tensor, shift1: Tensor, scale2: Tensor, shift2: Tensor,
    weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor, mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:  # fmt: skip
    """Do transformer_encoder_layer_forward."""

    def norm1(x: Tensor) -> Tensor:
        return F.layer_norm(x, (width,), scale1, shift1, eps)

    def norm2(x: Tensor) -> Tensor:
        return F.layer_norm(x, (width,), scale2, shift2, eps)

    x = norm1(src) if norm_first else src
    x = _attend(x, heads, qkv_weight, qkv_bias, out_weight, out_bias, mask is not None, False, False)[0]
    x = x.add_(src)
    if not norm_first:
        x = norm1(x)
    before = x
    if norm_first:
        x = norm2(x)
    x = F.linear(x, weight1, bias1)  # and the activation, in one kernel
    x = F.linear(x, weight2, bias2)
    x = x.add_(before)
    return x if norm_first else norm2(x)


def _counted(plan: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel that has `plan` counted; the CPU's function gives the results' values."""

    def run(mode: DispatchMode, func: Any, *args: Any) -> Any:
        if mode.box.dry:
            return plan(*args)
        counted = tensors_in((plan(*[without_data(mode, a) if isinstance(a, Tensor) else a for a in args]),))
        with unseen():
            values = func(*args)
        for value, place in zip(tensors_in((values,)), counted, strict=True):
            setattr(value.untyped_storage(), TAG, getattr(place.untyped_storage(), TAG))
        return values

    return run


KERNELS: dict[str, Callable[..., Any]] = {
    "_transformer_encoder_layer_fwd": _counted(_encoder_layer),
    "_native_multi_head_attention": _counted(_multi_head_attention),
}


# nn.TransformerEncoderLayer and nn.MultiheadAttention call it, and leave the fast path where torch functions are
# overridden, as in a box.
_has_torch_function = torch.overrides.has_torch_function


def has_torch_function(args: Iterable[Any]) -> bool:
    """Return whether some of `args` override torch functions; in a box, only by their class."""
    if box_here() is None:
        return _has_torch_function(args)
    return any(isinstance(t, Tensor) and type(t) not in (Tensor, nn.Parameter) for t in args)
