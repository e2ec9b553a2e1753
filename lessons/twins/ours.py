"""The same training by this course's library: `mpirun -np 4 python lessons/twins/ours.py [NAME ...]`.

Each function is the twin of that name in theirs.py: it takes a communicator, of real ranks or of virtual ones, trains
for as many steps, and returns all parameters, in full, on every rank.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator
from mpcourse.grid import Grid
from mpcourse.model_parallel import allgather
from mpcourse.pipeline import one_f_one_b
from mpcourse.pipeline.ranks import PipelineRank
from mpcourse.tensor_parallel import ParallelMLP
from mpcourse.zero import ShardedOptimizer, ShardedParameters

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # model.py, wherever this is started
from model import MLP, STEPS, adam, batch, model, share

Parameters = dict[str, torch.Tensor]


def train(module: nn.Module, optimizer: Any, rank: int, ranks: int) -> None:
    """STEPS steps on this rank's share of each batch, as in one process: the optimizer does the rest."""
    for step in range(STEPS):
        x, target = share(step, rank, ranks)
        optimizer.zero_grad()
        F.cross_entropy(module(x), target).backward()
        optimizer.step()


def data_parallel(comm: Any) -> Parameters:
    """Gradients are averaged in buckets during backward (lesson 06)."""
    whole = model()
    optimizer = MultiNodeOptimizer(adam(whole.parameters()), create_communicator("bucketed", comm), model=whole)
    train(whole, optimizer, comm.rank, comm.size)
    return {name: p.detach() for name, p in whole.named_parameters()}


def zero_1(comm: Any) -> Parameters:
    """ZeRO's stage 1: a rank has the optimizer's state of its shard alone, and updates that (lesson 10)."""
    whole = model()
    train(whole, ShardedOptimizer(adam, whole, comm), comm.rank, comm.size)
    return {name: p.detach() for name, p in whole.named_parameters()}


def fully_sharded(comm: Any) -> Parameters:
    """ZeRO's stage 3: a layer's parameters are gathered before it computes, and freed after it (lesson 10)."""
    whole = model()
    sharded = ShardedParameters(adam, whole, comm)
    train(whole, sharded, comm.rank, comm.size)
    with sharded.whole():
        return {name: p.detach().clone() for name, p in whole.named_parameters()}


def tensor_parallel(comm: Any) -> Parameters:
    """The first layer by columns, the second by rows, on all ranks; every rank has the whole batch."""
    part = _cut(model(), comm)
    train(part, adam(part.parameters()), 0, 1)
    return dict(_in_full(part, comm))


def grid(comm: Any) -> Parameters:
    """Two axes: tensor parallelism along the fast one, data parallelism along the other."""
    made = Grid(comm, data=comm.size // 2, tensor=2)
    part = _cut(model(), made.tensor)
    optimizer = MultiNodeOptimizer(adam(part.parameters()), create_communicator("flat", made.data), model=part)
    train(part, optimizer, made.data.rank, made.data.size)
    return dict(_in_full(part, made.tensor))


def pipeline(comm: Any) -> Parameters:
    """A pipeline of two stages, 1F1B: ranks 0 and 1; the others take no part, and are sent the result."""
    whole = model()
    front = nn.Sequential(whole.first, nn.GELU(), whole.second)
    part = front if comm.rank == 0 else nn.Sequential(nn.Tanh(), whole.third)
    two = comm.Split(int(comm.rank < 2), comm.rank)
    if comm.rank < 2:
        stage = PipelineRank(two, part, one_f_one_b(2, 4), F.cross_entropy)
        optimizer = adam(part.parameters())
        for step in range(STEPS):
            optimizer.zero_grad()
            stage.step(*batch(step))
            optimizer.step()
    for name, p in whole.named_parameters():
        comm.Bcast(p.detach().numpy(), int(name.startswith("third")))
    return {name: p.detach() for name, p in whole.named_parameters()}


def _cut(whole: MLP, comm: Any) -> nn.Sequential:
    return nn.Sequential(ParallelMLP(comm, whole.first, whole.second), nn.Tanh(), whole.third)


@torch.no_grad()
def _in_full(part: nn.Sequential, comm: Any) -> Iterator[tuple[str, torch.Tensor]]:
    mlp, _, third = part
    yield "first.weight", torch.cat(allgather(comm, mlp.first.weight))
    yield "first.bias", torch.cat(allgather(comm, mlp.first.bias))
    yield "second.weight", torch.cat(allgather(comm, mlp.second.weight), 1)
    yield "second.bias", mlp.second.bias.detach()
    yield from ((f"third.{name}", p.detach()) for name, p in third.named_parameters())


WAYS = {way.__name__: way for way in (data_parallel, zero_1, fully_sharded, tensor_parallel, grid, pipeline)}


def main() -> None:
    from mpi4py import MPI

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *WAYS], help="which of them; none: all")
    parser.add_argument("--save", help="a file for the parameters that rank 0 has in the end")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = {name: WAYS[name](MPI.COMM_WORLD) for name in asked.names or WAYS}
    if MPI.COMM_WORLD.rank == 0:
        if asked.save:
            torch.save(found, asked.save)
        for name, parameters in found.items():
            total = sum(float(p.square().sum()) for p in parameters.values())
            print(f"{name:16} {len(parameters)} parameters, sum of squares {total:.12f}")


if __name__ == "__main__":
    main()
