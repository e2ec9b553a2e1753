"""Attention of some queries to some keys: written out (blocks.py), or by torch's flash kernel."""

import torch

from mpcourse.context_parallel.blocks import block, block_backward

Tensor = torch.Tensor
aten = torch.ops.aten


def forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, mask: Tensor | None, fused: bool) -> tuple[Tensor, Tensor]:
    """Return attention, and its lse, as `blocks.block` does.

    q, k, v: of the queries and keys that meet.
    causal: query i sees keys 0 to i, of as many.
    mask: as in `block`, in place of `causal`; None: only `causal` matters.
    fused: by torch's kernel where there is no mask.
    """
    if not fused or mask is not None:
        return block(q, k, v, _lower(q) if causal and mask is None else mask)
    if q.device.type == "cuda":
        out, lse, *_ = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)
    else:
        out, lse = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    wide = torch.promote_types(q.dtype, torch.float32)
    return out.to(wide), lse.to(wide)


def backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, mask: Tensor | None,
    fused: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return these queries' and keys' part of the gradients of queries, keys and values, as `blocks.block_backward`.

    gradient, out, lse: of the queries, and of all keys.
    q, k, v, causal, mask, fused: as in `forward`.
    """
    if not fused or mask is not None:
        return block_backward(gradient, q, k, v, out, lse, _lower(q) if causal and mask is None else mask)
    given = (gradient.to(q.dtype), q, k, v, out.to(q.dtype), lse.contiguous())
    if q.device.type == "cuda":
        nothing = torch.empty(0, device=q.device)
        lengths = (None, None, q.shape[2], k.shape[2])
        return aten._scaled_dot_product_flash_attention_backward(*given, *lengths, 0.0, causal, nothing, nothing)
    return aten._scaled_dot_product_flash_attention_for_cpu_backward(*given, 0.0, causal)


def _lower(q: Tensor) -> Tensor:
    length = q.shape[2]
    return torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
