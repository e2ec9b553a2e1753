"""The same training by what torch ships: `torchrun --nproc-per-node 4 lessons/twins/theirs.py [NAME ...]`.

Each function trains the model of model.py for its steps and returns all parameters, in full, on every rank. On CPUs,
over gloo. Without names all of them run; --save FILE keeps the parameters of rank 0.
"""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # model.py, wherever this is started
from model import STEPS, adam, batch, model, share

Parameters = dict[str, torch.Tensor]


def in_full(module: torch.nn.Module) -> Parameters:
    """All parameters by name; of a DTensor the whole, gathered from the ranks. All ranks call it."""
    held = ((name, p.detach()) for name, p in module.named_parameters())
    return {name: p.full_tensor() if isinstance(p, DTensor) else p for name, p in held}


def train(module: torch.nn.Module, optimizer: torch.optim.Optimizer, rank: int, ranks: int) -> None:
    """STEPS steps on this rank's share of each batch, as in one process: the wrappers do the rest."""
    for step in range(STEPS):
        x, target = share(step, rank, ranks)
        optimizer.zero_grad()
        F.cross_entropy(module(x), target).backward()
        optimizer.step()


def data_parallel() -> Parameters:
    """DistributedDataParallel: gradients are averaged in buckets during backward (lesson 06)."""
    wrapped = DistributedDataParallel(model())
    train(wrapped, adam(wrapped.parameters()), dist.get_rank(), dist.get_world_size())
    return in_full(wrapped.module)


def zero_1() -> Parameters:
    """ZeroRedundancyOptimizer: a rank has the state of some parameters, updates these, and broadcasts them."""
    wrapped = DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.Adam, lr=0.01)
    train(wrapped, optimizer, dist.get_rank(), dist.get_world_size())
    return in_full(wrapped.module)


def fully_sharded() -> Parameters:
    """FSDP2: each rank has a part of every parameter; a layer is gathered before it is used, and freed after it."""
    whole = model()
    for layer in (whole.first, whole.second, whole.third):
        fully_shard(layer)
    fully_shard(whole)
    train(whole, adam(whole.parameters()), dist.get_rank(), dist.get_world_size())
    return in_full(whole)


def tensor_parallel() -> Parameters:
    """DTensor: the first layer by columns, the second by rows, on all ranks; every rank has the whole batch."""
    whole = model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tensor",))
    parallelize_module(whole, mesh, {"first": ColwiseParallel(), "second": RowwiseParallel()})
    train(whole, adam(whole.parameters()), 0, 1)
    return in_full(whole)


def grid() -> Parameters:
    """A mesh of two axes: tensor parallelism along the fast one, FSDP2 along the other."""
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "tensor"))
    whole = model()
    parallelize_module(whole, mesh["tensor"], {"first": ColwiseParallel(), "second": RowwiseParallel()})
    fully_shard(whole, mesh=mesh["data"])
    train(whole, adam(whole.parameters()), mesh["data"].get_local_rank(), mesh["data"].size())
    return in_full(whole)


def pipeline() -> Parameters:
    """A pipeline of two stages, 1F1B: ranks 0 and 1; the others take no part, and are sent the result."""
    whole, rank = model(), dist.get_rank()
    group = dist.new_group([0, 1])
    front = torch.nn.Sequential(whole.first, torch.nn.GELU(), whole.second)
    part = front if rank == 0 else torch.nn.Sequential(torch.nn.Tanh(), whole.third)
    if rank < 2:
        stage = PipelineStage(part, rank, 2, torch.device("cpu"), group=group)
        schedule = Schedule1F1B(stage, 4, loss_fn=F.cross_entropy)
        optimizer = adam(part.parameters())
        for step in range(STEPS):
            x, target = batch(step)
            optimizer.zero_grad()
            schedule.step(x) if rank == 0 else schedule.step(target=target)
            optimizer.step()
    found = in_full(whole)
    for name, p in found.items():
        dist.broadcast(p, int(name.startswith("third")))
    return found


WAYS = {
    way.__name__: way for way in (data_parallel, zero_1, fully_sharded, tensor_parallel, grid, pipeline)
}  # what `mpcourse bench twins` and the tests ask for by name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *WAYS], help="which of them; none: all")
    parser.add_argument("--save", help="a file for the parameters that rank 0 has in the end")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = {name: WAYS[name]() for name in asked.names or WAYS}
    if dist.get_rank() == 0:
        if asked.save:
            torch.save(found, asked.save)
        for name, parameters in found.items():
            total = sum(float(p.square().sum()) for p in parameters.values())
            print(f"{name:16} {len(parameters)} parameters, sum of squares {total:.12f}")
    time.sleep(0.1)  # gloo's threads free their tensors; while Python exits, they would abort it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
