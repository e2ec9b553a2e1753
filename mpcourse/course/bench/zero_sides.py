"""What `mpcourse bench zero` sets side by side: one model, and six ways to train it over ranks with Adam."""

from collections.abc import Callable
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

from mpcourse.course.bench.zero import SIDES
from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator
from mpcourse.models import mlp
from mpcourse.zero import OverlappedGradients, PrefetchedParameters, ShardedOptimizer

comm = MPI.COMM_WORLD
RATE = 0.001
UNIT = 4 << 20  # bytes; each layer's weight is a unit, as it is of stage 3 and of FSDP2


class Side(NamedTuple):
    """module: what is called. optimizer: whose `zero_grad` and `step` are. whole: all parameters; all ranks call it."""

    module: nn.Module
    optimizer: Any
    whole: Callable[[], list[torch.Tensor]]


def train(side: Side, x: torch.Tensor, y: torch.Tensor, steps: int) -> None:
    """So many steps on this rank's batch. All ranks call it."""
    for _ in range(steps):
        side.optimizer.zero_grad()
        F.cross_entropy(side.module(x), y).backward()
        side.optimizer.step()


def batch_of(widths: list[int], examples: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's random batch, another one on each rank: (examples, widths[0]), (examples,)."""
    draw = torch.Generator().manual_seed(1 + comm.rank)
    x = torch.randn(examples, widths[0], dtype=dtype, generator=draw)
    return x, torch.randint(widths[-1], (examples,), generator=draw)


def made(name: str, widths: list[int], dtype: torch.dtype) -> Side:
    """One of SIDES, with the same model on all ranks, and in every call."""
    torch.manual_seed(0)
    return MAKERS[name](mlp(widths).to(dtype))


def _adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=RATE)


def _here(module: nn.Module) -> Callable[[], list[torch.Tensor]]:
    return lambda: _copies(module.parameters())


def _copies(parameters: Any) -> list[torch.Tensor]:
    return [p.detach().clone() for p in parameters]


def _layers(module: nn.Module) -> list[nn.Module]:
    """Without those that have no parameters: nothing of them is to be gathered ahead."""
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
