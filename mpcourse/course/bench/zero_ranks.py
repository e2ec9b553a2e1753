"""What `mpcourse bench zero` runs on each rank: one model, and six ways to train it with Adam.

Speed is measured of all sides in the same processes, and memory of one side in processes that do no more.
"""

import gc
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch._dynamo  # what torch.optim imports at its first use, in seconds
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from mpcourse.course.bench.over_ranks import rank_main, take_turns
from mpcourse.course.bench.zero import OURS, SIDES, ZeroCase
from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator
from mpcourse.models import mlp
from mpcourse.zero import OverlappedGradients, PrefetchedParameters, ShardedOptimizer

comm = MPI.COMM_WORLD
PROCESS = Path("/proc/self")
COMPARED = 3  # steps
RATE = 0.001
UNIT = 4 << 20  # bytes; each layer's weight is a unit, as stage 3 and FSDP2 have it


class Side(NamedTuple):
    """module: what is called. optimizer: whose `zero_grad` and `step` are. whole: all parameters; all ranks call it."""

    module: nn.Module
    optimizer: Any
    whole: Callable[[], list[torch.Tensor]]


def train(side: Side, x: torch.Tensor, y: torch.Tensor, steps: int) -> None:
    """Make so many steps on this rank's batch. All ranks call it."""
    for _ in range(steps):
        side.optimizer.zero_grad()
        F.cross_entropy(side.module(x), y).backward()
        side.optimizer.step()


def batch_of(widths: list[int], examples: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a random batch, which differs from rank to rank: (examples, widths[0]), (examples,)."""
    draw = torch.Generator().manual_seed(1 + comm.rank)
    x = torch.randn(examples, widths[0], dtype=dtype, generator=draw)
    return x, torch.randint(widths[-1], (examples,), generator=draw)


def made(name: str, widths: list[int], dtype: torch.dtype) -> Side:
    """Make one of SIDES, with the same model on all ranks, and in every call."""
    torch.manual_seed(0)
    return MAKERS[name](mlp(widths).to(dtype))


def _adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=RATE)


def _here(module: nn.Module) -> Callable[[], list[torch.Tensor]]:
    return lambda: _copies(module.parameters())


def _copies(parameters: Any) -> list[torch.Tensor]:
    return [p.detach().clone() for p in parameters]


def _layers(module: nn.Module) -> list[nn.Module]:
    """Return the layers that have parameters; the others have nothing to gather ahead."""
    return [layer for layer in module.children() if any(True for _ in layer.parameters())]


def _data_parallel(module: nn.Module) -> Side:
    optimizer = MultiNodeOptimizer(_adam(module.parameters()), create_communicator("bucketed", comm), model=module)
    return Side(module, optimizer, _here(module))


def _stage_1(module: nn.Module) -> Side:
    return Side(module, ShardedOptimizer(_adam, module, comm, bucket_bytes=UNIT), _here(module))


def _stage_2(module: nn.Module) -> Side:
    return Side(module, OverlappedGradients(_adam, module, comm, bucket_bytes=UNIT), _here(module))


def _stage_3(module: nn.Module) -> Side:
    optimizer = PrefetchedParameters(_adam, module, comm, _layers(module))

    def whole() -> list[torch.Tensor]:
        with optimizer.whole():
            return _copies(module.parameters())

    return Side(module, optimizer, whole)


def _redundancy(module: nn.Module) -> Side:
    wrapped = DistributedDataParallel(module, gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(module.parameters(), torch.optim.Adam, parameters_as_bucket_view=True, lr=RATE)
    return Side(wrapped, optimizer, _here(module))


def _fsdp2(module: nn.Module) -> Side:
    mesh = init_device_mesh("cpu", (comm.size,))  # left alone, it takes virtual GPUs for an accelerator
    for layer in (*_layers(module), module):
        fully_shard(layer, mesh=mesh)

    def whole() -> list[torch.Tensor]:
        return [p.full_tensor().detach() for p in module.parameters() if isinstance(p, DTensor)]

    return Side(module, _adam(module.parameters()), whole)


WAYS = (_data_parallel, _stage_1, _stage_2, _stage_3, _redundancy, _fsdp2)
MAKERS: dict[str, Callable[[nn.Module], Side]] = dict(zip(SIDES, WAYS, strict=True))


def _measure(fields: list) -> dict:
    case = ZeroCase(*fields)
    return _memory(case) if case.side else _speed(case)


def _speed(case: ZeroCase) -> dict:
    """Time the same steps by all sides, and compare their parameters."""
    widths = list(case.widths)
    difference = _difference(widths)
    x, y = batch_of(widths, case.batch, torch.float32)
    calls = {name: partial(train, made(name, widths, torch.float32), x, y, case.steps) for name in SIDES}
    turns = take_turns(comm, calls, case.runs, over_gloo=set(SIDES) - set(OURS))
    seconds = {name: [taken for (taken,) in runs] for name, runs in turns.items()}
    return {"case": case, "seconds": seconds, "difference": comm.allreduce(difference, op=MPI.MAX)}


def _difference(widths: list[int]) -> float:
    """Return how far any side's parameters are from data parallelism's, over the largest, in float64."""
    x, y = batch_of(widths, 8, torch.float64)
    wanted: list[torch.Tensor] = []
    apart = 0.0
    for name in SIDES:
        side = made(name, widths, torch.float64)
        train(side, x, y, COMPARED)
        parameters = side.whole()
        wanted = wanted or parameters
        apart = max(apart, *(float((a - b).abs().max()) for a, b in zip(parameters, wanted, strict=True)))
    return apart / max(float(p.abs().max()) for p in wanted)


def _memory(case: ZeroCase) -> dict:
    """Measure the bytes that one side holds after some steps, and at most within them."""
    # Libraries that a first step loads and buffers of MPI and gloo are not a side's: so a small model goes first.
    small = [*case.widths[:2], *case.widths[-2:]]
    _train(case, small)
    gc.collect()
    comm.Barrier()
    (PROCESS / "clear_refs").write_text("5")  # from here on the peak counts anew
    before = _bytes("VmRSS")
    side, after = _train(case, list(case.widths)), _bytes("VmRSS")
    nbytes_of = {"held": after - before, "peak": _bytes("VmHWM") - before}
    del side
    return {key: comm.allreduce(nbytes, op=MPI.MAX) for key, nbytes in nbytes_of.items()}


def _train(case: ZeroCase, widths: list[int]) -> object:
    """Make some steps; return what there is after them."""
    x, y = batch_of(widths, case.batch, torch.float32)
    side = made(case.side, widths, torch.float32)
    train(side, x, y, case.steps)
    return side


def _bytes(name: str) -> int:
    """Return bytes of this process: VmRSS, what it has, or VmHWM, what it had at most."""
    line = re.search(rf"^{name}:\s+(\d+) kB", (PROCESS / "status").read_text(), re.MULTILINE)
    assert line is not None, name
    return 1024 * int(line[1])


if __name__ == "__main__":
    rank_main(_measure)
