"""What `mpcourse bench experts` runs on each rank: a mixture of experts by hand and by torch."""

from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.distributed._functional_collectives import all_to_all_single_autograd

from mpcourse.course.bench.experts import EXPERTS, SIDES, ExpertsCase
from mpcourse.course.bench.over_ranks import rank_main, take_turns
from mpcourse.experts import Mixture, average_gradients
from mpcourse.experts.routing import route

comm = MPI.COMM_WORLD
Tensor = torch.Tensor


def layer_of(case: ExpertsCase, dtype: torch.dtype) -> Mixture:
    """Return this rank's part of the layer."""
    torch.manual_seed(0)
    return Mixture(comm, case.width, case.hidden, EXPERTS, case.k).to(dtype)


def tokens_of(case: ExpertsCase, dtype: torch.dtype, rank: int) -> Tensor:
    """Return a rank's tokens, (tokens, width)."""
    return torch.randn(case.tokens, case.width, dtype=dtype, generator=torch.Generator().manual_seed(1 + rank))


def result(side: str, layer: Mixture, x: Tensor) -> Tensor:
    """Return the results of this rank's tokens by one of SIDES."""
    return layer(x).out if side == "ours" else _by_torch(layer, x)


def _by_torch(layer: Mixture, x: Tensor) -> Tensor:
    size, group = dist.get_world_size(), dist.group.WORLD
    assert group is not None
    routing = route(layer.router(x), layer.k)
    chosen = routing.chosen.flatten()
    order, counts = chosen.argsort(stable=True), torch.bincount(chosen, minlength=layer.number)
    tokens, arriving = order // layer.k, torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts)
    sent, received = (each.view(size, -1).sum(1).tolist() for each in (counts, arriving))
    rows = all_to_all_single_autograd(x[tokens], received, sent, group)
    expert = torch.arange(layer.number // size).repeat(size).repeat_interleave(arriving)
    sorted_here = expert.argsort(stable=True)
    results = layer.experts(rows[sorted_here], arriving.view(size, -1).sum(0).tolist())
    results = all_to_all_single_autograd(results[sorted_here.argsort()], sent, received, group)
    return torch.zeros_like(x).index_add(0, tokens, results * routing.weights.flatten()[order, None])


def _step(side: str, layer: Mixture, x: Tensor, times: int) -> None:
    for _ in range(times):
        layer.zero_grad()
        result(side, layer, x).square().sum().backward()


def _measure(fields: list) -> dict:
    case = ExpertsCase(*fields)
    layer, x = layer_of(case, torch.float32), tokens_of(case, torch.float32, comm.rank).requires_grad_()
    calls: dict[str, Callable[[], object]] = {side: partial(_step, side, layer, x, case.steps) for side in SIDES}
    turns = take_turns(comm, calls, case.runs, over_gloo={"torch"})
    return {
        "seconds": {name: [taken for (taken,) in runs] for name, runs in turns.items()},
        "difference": comm.allreduce(_difference(case._replace(tokens=24)), op=MPI.MAX),
    }


def _difference(case: ExpertsCase) -> float:
    """Return how far results and gradients of any side are from one process, in float64."""
    torch.manual_seed(0)
    whole = Mixture(None, case.width, case.hidden, EXPERTS, case.k).double()
    every = [tokens_of(case, torch.float64, rank).requires_grad_() for rank in range(comm.size)]
    outs = [whole(x).out for x in every]
    torch.stack([out.square().sum() for out in outs]).sum().backward()
    own = slice(EXPERTS // comm.size * comm.rank, EXPERTS // comm.size * (comm.rank + 1))
    gradients = [p.grad for p in whole.experts.parameters() if p.grad is not None]
    wanted = [outs[comm.rank], every[comm.rank].grad, whole.router.weight.grad, *(g[own] for g in gradients)]
    apart = 0.0
    for side in SIDES:
        layer, x = layer_of(case, torch.float64), tokens_of(case, torch.float64, comm.rank).requires_grad_()
        out = result(side, layer, x)
        out.square().sum().backward()
        average_gradients(comm, None, layer)  # over p ranks: those of the losses' sum are p times as large
        scaled = [comm.size * p.grad for p in (layer.router.weight, *layer.experts.parameters()) if p.grad is not None]
        for a, b in zip([out, x.grad, *scaled], wanted, strict=True):
            assert a is not None and b is not None
            apart = max(apart, (a - b).abs().max().item())
    return apart


if __name__ == "__main__":
    rank_main(_measure)
