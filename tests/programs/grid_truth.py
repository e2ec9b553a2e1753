"""Training on a grid of ranks beside one process: how far this rank's parameters, norms and losses are from it.

`mpirun -np 4 python tests/programs/grid_truth.py 2 2 1` prints, on rank 0, the largest difference of all ranks.
The sizes are those of the axes data, pipeline, tensor, context and expert. With an expert axis, each MLP is a mixture.
"""

import functools
import json
import sys

import torch
import torch.nn.functional as F

from mpcourse.context_parallel import SharedSequence, mean_token_loss
from mpcourse.grid import ORDER, Grid, GridTrainer, Shape, stage, transformer
from mpcourse.pipeline import SCHEDULES

SHAPE = Shape(vocabulary=13, length=6, width=12, heads=4, layers=3)
BATCH, MICROBATCHES, STEPS = 12, 3, 4
EXPERTS = 4


def loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def batches(seed=3):
    draw = torch.Generator().manual_seed(seed)
    shape = (BATCH, SHAPE.length)
    return [[torch.randint(SHAPE.vocabulary, shape, generator=draw) for _ in range(2)] for _ in range(STEPS)]


@functools.cache  # for all ranks of a process, and all grids
def one_process(make_optimizer, clip, experts=0):
    """Return the model that one process trains on whole batches, with the norms before clipping and the losses."""
    model = transformer(SHAPE, experts=experts, k=2).double()
    optimizer, norms, losses = make_optimizer(list(model.parameters())), [], []
    for x, target in batches():
        optimizer.zero_grad()
        mean = loss(model(x), target)
        mean.backward()
        if clip is not None:
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), clip).item())
        optimizer.step()
        losses.append(mean.item())
    return model, norms, losses


def share_of(name, whole, rank, size, expert=0, parts=1):
    """Of a parameter of one process the part that a rank of the tensor axis, and of the expert axis, has."""
    if ".experts." in name:
        return whole.chunk(parts)[expert]
    if ".qkv." in name or ".first." in name:  # a whole layer, too, has the queries, keys and values head by head
        return whole.chunk(size)[rank]
    if name.endswith((".out.weight", ".second.weight")):
        return whole.chunk(size, dim=1)[rank]
    return whole


def on_a_grid(comm, sizes, make_optimizer, clip=0.3, order=ORDER, schedule="1f1b", shape=SHAPE):
    """Train as `one_process` does, on this rank's part; the largest difference from it on any rank."""
    data, pipeline, tensor, context, expert = (*sizes, 1, 1)[:5]
    torch.manual_seed(comm.rank)  # ranks that draw different numbers must not differ in their models
    grid = Grid(comm, data=data, pipeline=pipeline, tensor=tensor, context=context, expert=expert, order=order)
    tokens = SharedSequence(grid.context, shape.length) if context > 1 else None
    experts = EXPERTS if len(sizes) == 5 else 0
    whole = transformer(shape, grid.tensor, tokens=tokens, experts=experts, expert_comm=grid.expert, k=2)
    part, tied = stage(whole.double(), pipeline, grid.pipeline.rank)
    rows = SCHEDULES[schedule](pipeline, MICROBATCHES)
    of_tokens = loss if tokens is None else functools.partial(mean_token_loss, grid.context)
    trainer = GridTrainer(grid, part, rows, of_tokens, make_optimizer, tied=tied, clip=clip)
    replicas, replica = data * expert, grid.data.rank * expert + grid.expert.rank
    own = slice(replica * BATCH // replicas, (replica + 1) * BATCH // replicas)
    cut = [(x[own], target[own]) for x, target in batches()]
    if tokens is not None:
        cut = [(tokens.own(x), tokens.own(target)) for x, target in cut]
    told = [trainer.step(x, target) for x, target in cut]
    model, norms, losses = one_process(make_optimizer, clip, experts)
    begin = 0 if grid.pipeline.rank == 0 else _first(model, pipeline, grid.pipeline.rank)
    off = [abs(a.norm - b) for a, b in zip(told, norms, strict=True)] if clip is not None else [0.0]
    told = grid.replicas.allgather([result.loss for result in told])
    if grid.pipeline.rank == pipeline - 1:
        means = [sum(each) / grid.replicas.size for each in zip(*told, strict=True)]
        off += [abs(mean - want) for mean, want in zip(means, losses, strict=True)]
    for number, layer in enumerate(part):
        whole = dict(model[begin + number].named_parameters())
        for name, p in layer.named_parameters():
            want = share_of(f".{name}", whole[name], grid.tensor.rank, tensor, grid.expert.rank, expert)
            off.append((p - want).abs().max().item())
    return max(comm.allgather(max(off)))


def _first(model, stages, number):
    """Return the place in the whole model of a stage's first layer."""
    from mpcourse.split.balance import balance

    return 1 + sum(balance([1] * (len(model) - 2), stages)[:number])


def adamw(parameters):
    # With torch's own eps, 1e-8, it divides by numbers so small that rounding grows a hundredfold.
    return torch.optim.AdamW(parameters, 1e-2, eps=1e-6)


def momentum(parameters):
    return torch.optim.SGD(parameters, 0.3, momentum=0.9)


if __name__ == "__main__":
    from mpi4py import MPI

    torch.set_num_threads(1)
    off = [on_a_grid(MPI.COMM_WORLD, [int(size) for size in sys.argv[1:]], make) for make in (adamw, momentum)]
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(off))
