"""Attention with dropout: on GPUs the fused kernels draw it themselves, and keep neither weights nor masks.

On a CPU torch leaves its fused kernel as soon as there is dropout (aten/src/ATen/native/transformers/sdp_utils_cpp.h),
and keeps both. The values are those of that path.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

from mpcourse.virtual import autocast
from mpcourse.virtual.attention import attention_seconds
from mpcourse.virtual.cost import in_parts, rounds_to_tf32
from mpcourse.virtual.device_checks import judged
from mpcourse.virtual.dispatch import DispatchMode
from mpcourse.virtual.flops import below_diagonal
from mpcourse.virtual.kernels import Whole, whole
from mpcourse.virtual.specs import GPU

Tensor = torch.Tensor


def _attention(
    mode: DispatchMode, func: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None,
    p: float = 0.0, is_causal: bool = False, **options: Any,
) -> Tensor:  # fmt: skip
    tensors = [query, key, value] + ([] if mask is None else [mask])
    judged(func, (query, key, value, mask), {}, mode.box)
    if torch.is_autocast_enabled("vgpu"):
        tensors = [autocast.cast(t, autocast.region_dtype()) for t in tensors]
    learned = mask is not None and mask.requires_grad
    if p == 0 or query.dim() != 4 or learned or options.get("enable_gqa"):
        query, key, value, *masks = tensors
        return in_parts(func, query, key, value, masks[0] if masks else None, p, is_causal, **options)

    def compute(given: Sequence[Tensor]) -> tuple[Tensor]:
        q, k, v, *masks = given
        return (func(q, k, v, masks[0] if masks else None, p, is_causal, **options),)

    def shapes(given: Sequence[Tensor]) -> tuple[Tensor]:
        """The result without its values; fused kernels write it in the order of the query."""
        q, v = given[0], given[2]
        return (torch.empty_like(q) if v.shape[3] == q.shape[3] else q.new_empty(*q.shape[:3], v.shape[3]),)

    def gradient(i: int, of: Tensor) -> Tensor:
        """And here the heads of a step together."""
        return of.new_empty(of.shape[0], of.shape[2], of.shape[1], of.shape[3]).transpose(1, 2)

    seen = below_diagonal(query.shape[-2], key.shape[-2]) if is_causal else 1.0
    dtype, (q, k, v) = tensors[0].dtype, (t.shape for t in tensors[:3])
    flops = round(sdpa_flop_count(q, k, v) * seen), round(sdpa_backward_flop_count((*q[:3], v[3]), q, k, v) * seen)

    masked = mask is not None  # what follows outlives the call, and keeps no tensor

    def takes(gpu: GPU, backward: bool) -> float:
        return attention_seconds(
            gpu, dtype, q, flops[backward], backward=backward, causal=is_causal, masked=masked,
            tf32=rounds_to_tf32("matmul"),
        )  # fmt: skip

    call = Whole(
        mode,
        func,
        "_scaled_dot_product_flash_attention_for_cpu",  # the name that this box has for it without dropout
        compute,
        shapes,
        gradient,
        flops=flops,
        takes=takes,
        reserve=4 * query.shape[:3].numel(),  # the logarithm of the sum of each row, in float32
        trains=True,
    )
    return whole(call, tensors)[0]


KERNELS: dict[str, Callable[..., Any]] = {"scaled_dot_product_attention": _attention}
