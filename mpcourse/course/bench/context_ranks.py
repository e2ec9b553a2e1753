"""What `mpcourse bench context` runs on each rank: ring attention by hand and by torch."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from mpi4py import MPI
from torch.distributed.tensor.experimental._context_parallel import _attention as torchs

from mpcourse.context_parallel import SharedSequence, gathered_attention, ring_attention, ulysses_attention
from mpcourse.course.bench.context import SIDES, ContextCase
from mpcourse.course.bench.over_ranks import rank_main, take_turns

comm = MPI.COMM_WORLD
aten = torch.ops.aten
Tensor = torch.Tensor


def sequence_of(side: str, length: int) -> SharedSequence:
    """Return the sequence as a side cuts it."""
    return SharedSequence(comm, length, "contiguous" if side.endswith("contiguous") else "zigzag")


def attention(side: str, tokens: SharedSequence, q: Tensor, k: Tensor, v: Tensor, gradient: Tensor) -> list[Tensor]:
    """Return one of SIDES' result, and the gradients of q, k and v, for this rank's tokens."""
    if side.startswith("torch"):
        return _by_torch(side.endswith("zigzag"), q, k, v, gradient)
    attend = {"gather": gathered_attention, "ulysses": ulysses_attention}.get(side, ring_attention)
    own = [x.detach().requires_grad_() for x in (q, k, v)]
    out = attend(tokens, *own)
    return [out.detach(), *torch.autograd.grad(out, own, gradient)]


def _by_torch(balanced: bool, q: Tensor, k: Tensor, v: Tensor, gradient: Tensor) -> list[Tensor]:
    options = torchs._cp_options
    options.enable_load_balance, options.convert_to_f32 = balanced, False  # it is float32, or float64, already
    group: Any = dist.group.WORLD
    forward: Any = aten._scaled_dot_product_flash_attention_for_cpu
    backward: Any = aten._scaled_dot_product_flash_attention_for_cpu_backward
    with torch.no_grad():
        out, lse = torchs._templated_ring_attention(group, 2, forward, q, k, v, is_causal=True)
        grads = torchs._templated_ring_attention_backward(
            group, 2, backward, gradient, "grad_out", q, k, v, out, lse, is_causal=True, dropout_p=0.0
        )
    return [out, *grads[:3]]


def batch_of(case: ContextCase, dtype: torch.dtype) -> list[Tensor]:
    """Return random q, k, v and a gradient, the same on all ranks."""
    draw = torch.Generator().manual_seed(1)
    return [torch.randn(1, case.heads, case.length, case.head, dtype=dtype, generator=draw) for _ in range(4)]


def _measure(fields: list) -> dict:
    case = ContextCase(*fields)
    whole, calls = batch_of(case, torch.float32), {}
    for side in SIDES:
        tokens = sequence_of(side, case.length)
        calls[side] = partial(
            _repeated, case.steps, partial(attention, side, tokens, *(tokens.own(x, 2) for x in whole))
        )
    gloo = {side for side in SIDES if side.startswith("torch")}
    turns = take_turns(comm, calls, case.runs, over_gloo=gloo)
    return {
        "seconds": {name: [taken for (taken,) in runs] for name, runs in turns.items()},
        "kernel": comm.bcast(_share_of_kernel(calls["torch: contiguous"]), comm.size - 1),
        "difference": comm.allreduce(_difference(case._replace(length=16 * comm.size)), op=MPI.MAX),
    }


def _repeated(steps: int, call: Callable[[], object]) -> None:
    for _ in range(steps):
        call()


def _share_of_kernel(call: Callable[[], object]) -> float:
    """Return the part of the time that this rank spends in torch's attention kernel."""
    begin = time.perf_counter()
    with torch.profiler.profile() as profile:
        call()
    taken = time.perf_counter() - begin
    rows = [row for row in profile.key_averages() if "_flash_attention_for_cpu" in row.key]
    return sum(row.self_cpu_time_total for row in rows) / 1e6 / taken


def _difference(case: ContextCase) -> float:
    """Return how far any side is from one process, in float64."""
    whole = batch_of(case, torch.float64)
    q, k, v = (x.clone().requires_grad_() for x in whole[:3])
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    wanted = [out.detach(), *torch.autograd.grad(out, (q, k, v), whole[3])]
    apart = 0.0
    for side in SIDES:
        tokens = sequence_of(side, case.length)
        found = attention(side, tokens, *(tokens.own(x, 2) for x in whole))
        pairs = zip(found, wanted, strict=True)
        apart = max(apart, *((a - tokens.own(b, 2)).abs().max().item() for a, b in pairs))
    return apart


if __name__ == "__main__":
    rank_main(_measure)
