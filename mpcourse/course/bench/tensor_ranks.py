"""What `mpcourse bench tensor` runs on each rank: layers of a transformer, cut by hand and by torch."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch._dynamo  # what torch.optim imports at its first use, in seconds
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from mpcourse.course.bench.over_ranks import rank_main, take_turns
from mpcourse.course.bench.tensor import OURS, SIDES, TensorCase
from mpcourse.models.gpt import Block, Shape
from mpcourse.tensor_parallel import Options, ParallelBlock, own_rows, sum_partial_gradients, whole_state

comm = MPI.COMM_WORLD
COMPARED = 3  # steps
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::_scaled_dot_product_flash_attention_for_cpu")


class TorchBlock(nn.Module):
    """The layer as torch cuts it: (length, batch, width) to the same.

    block: its weights. The outputs of qkv are head by head, each with its query, key and value, so that a rank's
    outputs are whole heads.
    """

    def __init__(self, block: Block) -> None:
        super().__init__()
        whole = ParallelBlock(None, block)
        self.head = block.qkv.in_features // block.heads
        self.norm1, self.norm2 = block.norm1, block.norm2
        self.qkv, self.out, self.first, self.second = block.qkv, block.out, block.first, block.second
        self.qkv.load_state_dict(whole.attention.qkv.state_dict())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (-1, 3, self.head)).permute(3, 1, 2, 0, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.permute(2, 0, 1, 3).flatten(2))
        return x + self.second(F.gelu(self.first(self.norm2(x))))


class Side(NamedTuple):
    """module: the layers. optimizer: of all parameters. sequence: it takes this rank's rows."""

    module: nn.Module
    optimizer: torch.optim.Optimizer
    sequence: bool


def made(name: str, case: TensorCase, dtype: torch.dtype) -> Side:
    """Make one of SIDES, with the same weights on all ranks, and in every call."""
    torch.manual_seed(0)
    shape = Shape(2, case.length, case.width, case.heads, case.layers)
    blocks = [Block(shape).to(dtype) for _ in range(case.layers)]
    sequence = name.endswith("sequence")
    if name in OURS:
        module = nn.Sequential(*(ParallelBlock(comm, block, Options(sequence=sequence)) for block in blocks))
    else:
        module = nn.Sequential(*(_by_torch(TorchBlock(block), sequence) for block in blocks))
    return Side(module, torch.optim.SGD(module.parameters(), 0.01), sequence)


def _by_torch(block: nn.Module, sequence: bool) -> nn.Module:
    mesh = init_device_mesh("cpu", (comm.size,))
    if not sequence:
        plan: dict[str, Any] = dict.fromkeys(("qkv", "first"), ColwiseParallel())
        plan |= dict.fromkeys(("out", "second"), RowwiseParallel())
    else:
        plan = dict.fromkeys(("norm1", "norm2"), SequenceParallel(sequence_dim=0))
        plan |= dict.fromkeys(("qkv", "first"), ColwiseParallel(input_layouts=Shard(0)))
        plan |= dict.fromkeys(("out", "second"), RowwiseParallel(output_layouts=Shard(0)))
    return parallelize_module(block, mesh, plan)


def train(side: Side, x: torch.Tensor, steps: int) -> None:
    """Make so many steps on one batch, (length, batch, width). All ranks call it."""
    given = x[own_rows(comm, len(x))] if side.sequence else x
    for _ in range(steps):
        side.optimizer.zero_grad()
        (side.module(given).square().sum() / x.numel()).backward()
        if isinstance(next(side.module.children()), ParallelBlock):
            sum_partial_gradients(comm, side.module)
        side.optimizer.step()


def batch_of(case: TensorCase, dtype: torch.dtype) -> torch.Tensor:
    """Return a random batch, the same on all ranks."""
    draw = torch.Generator().manual_seed(1)
    return torch.randn(case.length, case.batch, case.width, dtype=dtype, generator=draw)


def _measure(fields: list) -> dict:
    case = TensorCase(*fields)
    difference = _difference(case._replace(length=4 * comm.size, width=4 * case.heads))
    x = batch_of(case, torch.float32)
    sides = {name: made(name, case, torch.float32) for name in SIDES}
    calls: dict[str, Callable[[], object]] = {name: partial(train, side, x, case.steps) for name, side in sides.items()}
    turns = take_turns(comm, calls, case.runs, over_gloo=set(SIDES) - set(OURS))
    return {
        "seconds": {name: [taken for (taken,) in runs] for name, runs in turns.items()},
        "products": _products(sides["torch: tensor"], x),
        "difference": comm.allreduce(difference, op=MPI.MAX),
    }


def _products(side: Side, x: torch.Tensor) -> float:
    """Return the part of a step's time that rank 0 spends on products."""
    begin = time.perf_counter()
    with torch.profiler.profile() as profile:
        train(side, x, 2)
    taken = time.perf_counter() - begin
    rows = [row for row in profile.key_averages() if row.key.removesuffix("_backward") in PRODUCTS]
    return sum(row.self_cpu_time_total for row in rows) / 1e6 / taken


def _difference(case: TensorCase) -> float:
    """Return how far any side's parameters are from one process's, over the largest, in float64."""
    x, apart = batch_of(case, torch.float64), 0.0
    torch.manual_seed(0)
    shape = Shape(2, case.length, case.width, case.heads, case.layers)
    module = nn.Sequential(*(ParallelBlock(None, Block(shape).double()) for _ in range(case.layers)))
    alone = Side(module, torch.optim.SGD(module.parameters(), 0.01), False)
    train(alone, x, COMPARED)
    for name in SIDES:
        side = made(name, case, torch.float64)
        train(side, x, COMPARED)
        if name in OURS:
            state, wanted = whole_state(comm, side.module), whole_state(None, module)
        else:
            state = {key: _whole(p) for key, p in side.module.named_parameters()}
            # As they lie in our module, whose queries, keys and values are head by head, as torch's are.
            own = {key: p.detach() for key, p in module.named_parameters()}
            wanted = {key.replace("attention.", "").replace("mlp.", ""): p for key, p in own.items()}
        apart = max(apart, *(float((state[key] - p).abs().max()) for key, p in wanted.items()))
    return apart / max(float(p.detach().abs().max()) for p in module.parameters())


def _whole(p: torch.Tensor) -> torch.Tensor:
    return p.full_tensor().detach() if isinstance(p, DTensor) else p.detach()


if __name__ == "__main__":
    rank_main(_measure)
