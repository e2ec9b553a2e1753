"""Attention to gathered keys and values: each rank gets those of all ranks before it computes, as Llama 3 was trained.

Source: Llama team, The Llama 3 Herd of Models, 2024, section 3.3.2, https://arxiv.org/abs/2407.21783.
"""

from typing import Any

import torch
import torch.nn.functional as F

from mpcourse.collectives.tensors import all_gather, reduce_scatter
from mpcourse.context_parallel.ring import check_shapes, nothing_seen, see, see_backward
from mpcourse.context_parallel.tokens import SharedSequence

Tensor = torch.Tensor


def gathered_attention(
    tokens: SharedSequence, q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, fused: bool = True
) -> Tensor:
    """Return attention of this rank's queries to the keys of all ranks, (batch, heads, own tokens, head).

    tokens, q, k, v, causal, fused: as in `ring_attention`; all ranks call this, and run backward.

    Forward gathers keys and values. Backward gathers them again, so that no rank keeps those of others, and sums their
    gradients by a reduce-scatter. A rank sends as many bytes as around the ring, but begins to compute only when all
    keys and values have arrived.
    Ranks with fewer tokens pad theirs to the largest number.
    Raises ValueError for another number of tokens than this rank has, and for heads that groups cannot share.
    """
    check_shapes(tokens, q, k, v)
    return _GatheredAttention.apply(tokens, causal, fused, q, k, v)


class _GatheredAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: SharedSequence, causal: bool, fused: bool, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, lse = nothing_seen(q)
        for rank, (keys, values) in enumerate(_gather(tokens, k, v)):
            see(tokens, rank, causal, fused, q, keys, values, out, lse)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.tokens, ctx.causal, ctx.fused = tokens, causal, fused
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        tokens, seen = ctx.tokens, (ctx.causal, ctx.fused, gradients[0])
        of_q = torch.zeros_like(q, dtype=lse.dtype)
        found = [
            _padded(tokens, *see_backward(tokens, rank, *seen, q, keys, values, out, lse, of_q))
            for rank, (keys, values) in enumerate(_gather(tokens, k, v))
        ]
        summed = reduce_scatter(tokens.comm, torch.cat(found))[: k.shape[2]]
        of_k, of_v = summed.permute(1, 2, 3, 0, 4)
        return None, None, None, of_q.to(q.dtype), of_k.to(k.dtype), of_v.to(v.dtype)


def _gather(tokens: SharedSequence, k: Tensor, v: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the keys and values of each rank."""
    whole = all_gather(tokens.comm, _padded(tokens, k, v)).chunk(tokens.size)
    each = (rows[: tokens.tokens_of(rank)].permute(1, 2, 3, 0, 4) for rank, rows in enumerate(whole))
    return [(keys, values) for keys, values in each]


def _padded(tokens: SharedSequence, k: Tensor, v: Tensor) -> Tensor:
    """Return keys and values as rows of tokens, (most tokens of a rank, 2, batch, groups, head)."""
    rows = torch.stack([k, v]).permute(3, 0, 1, 2, 4)
    most = max(tokens.tokens_of(rank) for rank in range(tokens.size))
    return F.pad(rows, (0, 0) * 4 + (0, most - len(rows)))
