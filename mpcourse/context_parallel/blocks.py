"""Attention in blocks of keys, whose results are merged: online softmax.

For a query with scores s, attention returns the sum of e^s v over all keys, divided by the sum of e^s. Both sums can be
computed block by block, but e^s overflows. So a block returns its own result, and the logarithm of its sum of
exponentials, "lse". Two blocks are merged by their shares of the exponentials. So no query needs all keys at once, and
the scores of a block need not be kept.

Backward needs the lse of all keys: e^(s - lse) is a key's weight in the whole softmax. With it, each block's part of
the gradients is computed without the other blocks.

Sources: Maxim Milakov and Natalia Gimelshein, Online normalizer calculation for softmax, 2018,
https://arxiv.org/abs/1805.02867; Tri Dao and others, FlashAttention, 2022, https://arxiv.org/abs/2205.14135, section 3.

Shapes: queries (batch, heads, queries, head); keys and values (batch, groups, keys, head), where each group of keys and
values serves heads / groups consecutive heads of queries; lse (batch, heads, queries).
"""

import math

import torch

Tensor = torch.Tensor
INFINITY = float("inf")


def block(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return attention to one block of keys, and its lse. A query that sees no key gets 0, and minus infinity.

    q, k, v: of the shapes above, and one dtype.
    mask: bool (queries, keys) or (batch, 1, queries, keys); True where a query sees a key. None: it sees all of them.

    Computes in float32 at least, and returns the dtype in which it computed.
    """
    scores = _scores(q, k, mask)
    lse = scores.logsumexp(-1)
    weights = (scores - lse.masked_fill(lse == -INFINITY, 0)[..., None]).exp()
    return weights @ _each_head(v, q).to(weights.dtype), lse


def merge(out: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor) -> None:
    """Add the result of another block of keys to `out` and `lse`, in place.

    out, other: (batch, heads, queries, head), as `block` returns them for the same queries and different keys.
    lse, other_lse: (batch, heads, queries), those of both.

    The other block's share of all exponentials is e^b / (e^a + e^b), the sigmoid of b - a.
    """
    share = torch.sigmoid(other_lse - lse).nan_to_num(0)  # no number if a query has seen no key in either block
    out.lerp_(other, share[..., None])
    lse.copy_(torch.logaddexp(lse, other_lse))


def block_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return one block's part of the gradients of queries, and the gradients of its keys and values.

    gradient, out: (batch, heads, queries, head), of attention to all keys.
    q, k, v: those of the block.
    lse: (batch, heads, queries), of all keys.
    mask: as in `block`.

    The gradient of a score is its weight times (the gradient of the weight minus the weighted mean of these gradients
    over all keys). This mean is the sum of `gradient` times `out`, so it needs no other block.
    """
    weights = (_scores(q, k, mask) - lse.masked_fill(lse == -INFINITY, 0)[..., None]).exp()
    gradient, wide = gradient.to(weights.dtype), q.to(weights.dtype)
    of_weights = gradient @ _each_head(v, q).to(weights.dtype).transpose(-1, -2)
    of_scores = weights * (of_weights - (gradient * out).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1])
    of_q = of_scores @ _each_head(k, q).to(weights.dtype)
    of_k = of_scores.transpose(-1, -2) @ wide
    of_v = weights.transpose(-1, -2) @ gradient
    return of_q, _sum_of_group(of_k, k), _sum_of_group(of_v, v)


def blockwise_attention(q: Tensor, k: Tensor, v: Tensor, size: int) -> Tensor:
    """Return causal attention, computed for `size` keys at a time.

    q, k, v: of the shapes above, with as many keys as queries.
    size: keys of a block; the last one may have fewer.
    """
    position = torch.arange(k.shape[2], device=k.device)
    visible = position <= position[:, None]
    out, lse = block(q, k[:, :, :size], v[:, :, :size], visible[:, :size])
    for begin in range(size, k.shape[2], size):
        keys = slice(begin, begin + size)
        merge(out, lse, *block(q, k[:, :, keys], v[:, :, keys], visible[:, keys]))
    return out.to(q.dtype)


def _scores(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = q.to(wide) @ _each_head(k, q).to(wide).transpose(-1, -2) / math.sqrt(q.shape[-1])
    return scores if mask is None else scores.masked_fill(~mask, -INFINITY)


def _each_head(k: Tensor, q: Tensor) -> Tensor:
    """Return keys or values for each head of the queries."""
    return k.repeat_interleave(q.shape[1] // k.shape[1], 1)


def _sum_of_group(gradient: Tensor, k: Tensor) -> Tensor:
    """Add up the gradients of the heads that share keys or values."""
    return gradient.unflatten(1, (k.shape[1], -1)).sum(2)
