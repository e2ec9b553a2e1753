"""Attention with all tokens and some of the heads: an all-to-all before it, and one behind.

Source: Sam Ade Jacobs and others, DeepSpeed Ulysses, 2023, https://arxiv.org/abs/2309.14509.
"""

from typing import Any

import torch
import torch.nn.functional as F

from mpcourse.collectives.tensors import all_to_all
from mpcourse.context_parallel.ring import check_shapes
from mpcourse.context_parallel.tokens import SharedSequence

Tensor = torch.Tensor


def ulysses_attention(tokens: SharedSequence, q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True) -> Tensor:
    """Return attention of this rank's queries to the keys of all ranks, (batch, heads, own tokens, head).

    tokens, q, k, v, causal: as in `ring_attention`; all ranks call this, and run backward. The layout does not matter
    to the work: each rank computes heads / p whole heads.

    An all-to-all gives each rank all tokens of its heads, and another one gives the results back to the tokens' ranks.
    For each of q, k, v and the result, a rank sends (p - 1) / p of its bytes, in forward and in backward. With more
    ranks than groups, keys and values are sent to each rank that needs them.
    Raises ValueError where the ranks cannot share the heads equally, or neither of groups and ranks divides the other;
    and as `ring_attention`.
    """
    check_shapes(tokens, q, k, v)
    size, heads, groups = tokens.size, q.shape[1], k.shape[1]
    if heads % size:
        raise ValueError(f"{heads} heads cannot be shared alike by {size} ranks: ring attention needs no heads to cut")
    if groups % size and size % groups:
        raise ValueError(f"{groups} heads of keys and values cannot be shared alike by {size} ranks, nor they by these")
    if groups % size:
        k, v = (x.repeat_interleave(size // groups, 1) for x in (k, v))
    q, k, v = (_ToHeads.apply(tokens, x) if size > 1 else x for x in (q, k, v))
    everywhere = torch.arange(tokens.length, device="cpu")
    mask = None if tokens.documents is None else tokens.mask(everywhere, everywhere, q.device, causal)
    alone = causal and mask is None
    mixed = F.scaled_dot_product_attention(q, k, v, mask, is_causal=alone, enable_gqa=q.shape[1] != k.shape[1])
    if mask is not None:  # padding sees nothing, and torch's softmax of nothing is not a number
        mixed = mixed.masked_fill(~mask.any(-1, keepdim=True), 0)
    return _ToTokens.apply(tokens, mixed) if size > 1 else mixed


class _ToHeads(torch.autograd.Function):
    """(batch, heads, own tokens, head) -> (batch, heads / p, all tokens, head)."""

    @staticmethod
    def forward(ctx: Any, tokens: SharedSequence, x: Tensor) -> Tensor:
        ctx.tokens = tokens
        return _to_heads(tokens, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, _to_tokens(ctx.tokens, gradients[0])


class _ToTokens(torch.autograd.Function):
    """(batch, heads / p, all tokens, head) -> (batch, heads, own tokens, head)."""

    @staticmethod
    def forward(ctx: Any, tokens: SharedSequence, x: Tensor) -> Tensor:
        ctx.tokens = tokens
        return _to_tokens(tokens, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, _to_heads(ctx.tokens, gradients[0])


def _to_heads(tokens: SharedSequence, x: Tensor) -> Tensor:
    assert tokens.comm is not None
    parts = x.chunk(tokens.size, 1)
    shapes = [(*parts[0].shape[:2], tokens.tokens_of(rank), x.shape[3]) for rank in range(tokens.size)]
    return torch.cat(all_to_all(tokens.comm, parts, shapes), 2).index_select(2, tokens.in_order().to(x.device))


def _to_tokens(tokens: SharedSequence, x: Tensor) -> Tensor:
    assert tokens.comm is not None
    parts = [x.index_select(2, tokens.positions_of(rank).to(x.device)) for rank in range(tokens.size)]
    return torch.cat(all_to_all(tokens.comm, parts, [parts[tokens.rank].shape] * tokens.size), 1)
