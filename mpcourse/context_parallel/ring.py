"""Ring attention: keys and values travel from rank to rank, and each rank's queries meet all of them.

Source: Hao Liu and others, Ring Attention with Blockwise Transformers, 2023, https://arxiv.org/abs/2310.01889.
"""

from collections.abc import Callable
from typing import Any

import torch

from mpcourse.context_parallel import kernels
from mpcourse.context_parallel.blocks import INFINITY, merge
from mpcourse.context_parallel.messages import pass_on
from mpcourse.context_parallel.tokens import SharedSequence, rectangles

Tensor = torch.Tensor
Pair = tuple[Tensor, Tensor]  # keys and values, or gradients of both


def ring_attention(
    tokens: SharedSequence, q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, fused: bool = True
) -> Tensor:
    """Return attention of this rank's queries to the keys of all ranks, (batch, heads, own tokens, head).

    tokens: shared by the ranks, which all call this, and run backward.
    q: this rank's, (batch, heads, own tokens, head).
    k, v: this rank's, (batch, groups, own tokens, head); each group is for heads / groups consecutive heads of queries.
    causal: a query sees no later key.
    fused: by torch's flash kernel where there are no documents; otherwise as blocks.py has it.

    In p - 1 of p steps, a rank passes keys and values on to the next one while it computes. In backward, keys and
    values travel once more. Their gradients travel behind them, each rank adds its part, and the last one sends them to
    the rank that has the keys. If all ranks have equally many tokens, a rank sends (p - 1) times the bytes of its keys
    and values in forward, and twice as many in backward. Gradients of 16 bits travel in float32.
    Raises ValueError for another number of tokens than this rank has, and for heads that groups cannot share.
    """
    check_shapes(tokens, q, k, v)
    return _RingAttention.apply(tokens, causal, fused, q, k, v)


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: SharedSequence, causal: bool, fused: bool, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, lse = nothing_seen(q)
        keys, values = k, v
        for step in range(tokens.size):
            source = (tokens.rank - step) % tokens.size
            if step < tokens.size - 1:
                arrived = _pass_on(tokens, (keys, values), source - 1)
            see(tokens, source, causal, fused, q, keys, values, out, lse)
            if step < tokens.size - 1:
                keys, values = arrived()
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.tokens, ctx.causal, ctx.fused = tokens, causal, fused
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        tokens, seen = ctx.tokens, (ctx.causal, ctx.fused, gradients[0])
        of_q = torch.zeros_like(q, dtype=lse.dtype)
        keys, values, arriving = k, v, None
        for step in range(tokens.size):
            source = (tokens.rank - step) % tokens.size
            if step < tokens.size - 1:
                arrived = _pass_on(tokens, (keys, values), source - 1)
            found = see_backward(tokens, source, *seen, q, keys, values, out, lse, of_q)
            if step == 0:
                own = found  # of this rank's own keys; the other ranks' parts arrive at the end
            else:  # of keys that the rank before had in the step before: add its sum, and pass it on
                found = found if arriving is None else _add(arriving(), found)
                arriving = _pass_on(tokens, found, source - 1)
            if step < tokens.size - 1:
                keys, values = arrived()
        of_k, of_v = own if arriving is None else _add(arriving(), own)
        return None, None, None, of_q.to(q.dtype), of_k.to(k.dtype), of_v.to(v.dtype)


def nothing_seen(q: Tensor) -> tuple[Tensor, Tensor]:
    """Return the result and the lse of queries that have seen no key: zeros, and minus infinity, in float32 at least.

    q: (batch, heads, own tokens, head).
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    return torch.zeros_like(q, dtype=wide), torch.full(q.shape[:3], -INFINITY, dtype=wide, device=q.device)


def see(
    tokens: SharedSequence, rank: int, causal: bool, fused: bool, q: Tensor, keys: Tensor, values: Tensor, out: Tensor,
    lse: Tensor,
) -> None:  # fmt: skip
    """Let this rank's queries see the keys of a rank: merge the result into `out` and `lse`, in place.

    tokens: shared by the ranks. rank: has the keys. All other arguments are those of `ring_attention`.
    """
    for part in rectangles(tokens, rank, causal):
        rows, columns = part.queries, part.keys
        mask = tokens.mask_of(part, rank, q.device)
        found = kernels.forward(q[:, :, rows], keys[:, :, columns], values[:, :, columns], part.causal, mask, fused)
        merge(out[:, :, rows], lse[:, :, rows], *found)


def see_backward(
    tokens: SharedSequence, rank: int, causal: bool, fused: bool, gradient: Tensor, q: Tensor, keys: Tensor,
    values: Tensor, out: Tensor, lse: Tensor, of_q: Tensor,
) -> Pair:  # fmt: skip
    """Add the gradient that comes from a rank's keys to `of_q`, in place; return this rank's part of theirs.

    tokens: shared by the ranks. rank: has the keys. All other arguments are those of `ring_attention`.
    """
    of_keys, of_values = torch.zeros_like(keys, dtype=lse.dtype), torch.zeros_like(values, dtype=lse.dtype)
    for part in rectangles(tokens, rank, causal):
        rows, columns = part.queries, part.keys
        mask = tokens.mask_of(part, rank, q.device)
        found = kernels.backward(
            gradient[:, :, rows], q[:, :, rows], keys[:, :, columns], values[:, :, columns], out[:, :, rows],
            lse[:, :, rows], part.causal, mask, fused,
        )  # fmt: skip
        of_q[:, :, rows] += found[0]
        of_keys[:, :, columns] += found[1]
        of_values[:, :, columns] += found[2]
    return of_keys, of_values


def check_shapes(tokens: SharedSequence, q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise ValueError where queries, keys and values are not those of this rank's tokens.

    tokens: shared by the ranks.
    q: (batch, heads, own tokens, head).
    k, v: (batch, groups, own tokens, head).
    """
    own = len(tokens.positions)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != 4 or x.shape[2] != own:
            raise ValueError(
                f"{name} is {tuple(x.shape)}: rank {tokens.rank} has {own} of {tokens.length} tokens, and needs "
                f"(batch, heads, {own}, head)"
            )
    if k.shape[1] != v.shape[1]:
        raise ValueError(f"there are {k.shape[1]} heads of keys and {v.shape[1]} of values")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"{q.shape[1]} heads of queries cannot be shared alike by {k.shape[1]} heads of keys")


def _pass_on(tokens: SharedSequence, both: Pair, source: int) -> Callable[[], Pair]:
    """Begin to send keys and values, or gradients of them, to the next rank; return a function that waits for others.

    source: the rank whose keys and values, or whose gradients, arrive.
    """
    assert tokens.comm is not None
    length = tokens.tokens_of(source % tokens.size)
    arrived = pass_on(tokens.comm, both, [(*x.shape[:2], length, x.shape[3]) for x in both])

    def wait() -> Pair:
        one, other = arrived()
        return one, other

    return wait


def _add(one: Pair, other: Pair) -> Pair:
    return one[0] + other[0], one[1] + other[1]
