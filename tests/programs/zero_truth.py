"""ZeRO over ranks beside one process: how far this rank's parameters and norms are from it.

`mpirun -np 4 python tests/programs/zero_truth.py` prints, on rank 0, the largest difference of each case, on 1 to 4 of
the ranks.
"""

import json

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.grid import Shape, transformer
from mpcourse.zero import (
    OverlappedGradients,
    PrefetchedParameters,
    ShardedGradients,
    ShardedOptimizer,
    ShardedParameters,
    within_nodes,
)

STAGES = {
    each.__name__: each
    for each in (ShardedOptimizer, ShardedGradients, ShardedParameters, OverlappedGradients, PrefetchedParameters)
}
BATCH, MICROBATCHES, STEPS, CLIP = 24, 2, 3, 0.3  # 24 examples are shared alike by 1, 2, 3 and 4 ranks
SHAPE = Shape(vocabulary=13, length=4, width=8, heads=2, layers=1)


def mlp():
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 3))
    model[2].bias.requires_grad_(False)
    return model


def conv_net():
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.GroupNorm(1, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(27, 3))


def language_model():
    return transformer(SHAPE, seed=torch.initial_seed())


def transformer_loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def drawn(seed, make):
    draw = torch.Generator().manual_seed(seed)
    return [make(draw) for _ in range(STEPS)]


def of_classes(*shape):
    def make(draw):
        return (
            torch.randn(BATCH, *shape, dtype=torch.float64, generator=draw),
            torch.randint(3, (BATCH,), generator=draw),
        )

    return make


def of_tokens(draw):
    return tuple(torch.randint(SHAPE.vocabulary, (BATCH, SHAPE.length), generator=draw) for _ in range(2))


# How each is made, its batches, its loss.
MODELS = {
    "mlp": (mlp, drawn(1, of_classes(5)), F.cross_entropy),
    "conv net": (conv_net, drawn(2, of_classes(1, 5, 5)), F.cross_entropy),
    "transformer": (
        lambda: transformer(SHAPE, seed=torch.initial_seed() % 1000),
        drawn(3, of_tokens),
        transformer_loss,
    ),
}
OPTIMIZERS = {
    "momentum": lambda groups: torch.optim.SGD(groups, 0.3, momentum=0.9),
    "adam": lambda groups: torch.optim.Adam(groups, 0.01),
    "adamw": lambda groups: torch.optim.AdamW(groups, 0.01),
}


def made(model, seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[model][0]().double()


def two_groups(model):
    """As trainings have them: no weight decay for vectors, and another learning rate."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0, "lr": 0.02},
    ]


def one_process(model, optimizer):
    """Return the parameters that one process ends with, and the norms before clipping."""
    _, batches, loss = MODELS[model]
    whole, norms = made(model, 0), []
    update = OPTIMIZERS[optimizer](two_groups(whole))
    for x, target in batches:
        update.zero_grad()
        loss(whole(x), target).backward()
        norms.append(nn.utils.clip_grad_norm_(whole.parameters(), CLIP).item())
        update.step()
    return [p.detach() for p in whole.parameters()], norms


def sharded(kind, model, optimizer, comm, ranks_per_node=None, **options):
    """Make the optimizer of this rank's model, which was drawn with the rank's own seed."""
    ranks = within_nodes(comm, ranks_per_node) if ranks_per_node else {"comm": comm}
    if issubclass(STAGES[kind], ShardedParameters):
        options["layers"] = list(model)
    else:
        options["bucket_bytes"] = 500  # a few parameters each
    return STAGES[kind](OPTIMIZERS[optimizer], two_groups(model), **ranks, **options)


def values(update, model):
    """All parameters, copied. All ranks call it."""
    if isinstance(update, ShardedParameters):
        with update.whole():
            return [p.detach().clone() for p in model.parameters()]
    return [p.detach().clone() for p in model.parameters()]


def on_ranks(comm, kind, model, optimizer, ranks_per_node=None):
    """Train as `one_process` does; the largest difference from it on any rank. One batch more is refused."""
    _, batches, loss = MODELS[model]
    own = made(model, comm.rank)
    update = sharded(kind, own, optimizer, comm, ranks_per_node)
    wanted, norms = one_process(model, optimizer)
    off = []
    for step, ((x, target), norm) in enumerate(zip(batches, norms, strict=True)):
        if step == 1:
            update.zero_grad()
            loss(own(x), target).mul(float("inf") if comm.rank == comm.size - 1 else 1).backward()
            try:
                update.step(CLIP)
            except FloatingPointError:
                off.append(0.0)
        update.zero_grad()
        share = slice(comm.rank * BATCH // comm.size, (comm.rank + 1) * BATCH // comm.size)
        for part in zip(x[share].chunk(MICROBATCHES), target[share].chunk(MICROBATCHES), strict=True):
            (loss(own(part[0]), part[1]) / MICROBATCHES).backward()
        off.append(abs(update.step(CLIP) - norm))
    assert len(off) == STEPS + 1, "the batch was not refused"
    off += [(a - b).abs().max().item() for a, b in zip(values(update, own), wanted, strict=True)]
    return max(comm.allgather(max(off)))


if __name__ == "__main__":
    from mpi4py import MPI

    torch.set_num_threads(1)
    world = MPI.COMM_WORLD
    found = {}
    for size in range(1, world.size + 1):
        comm = world.Split(0 if world.rank < size else 1)
        for i, kind in enumerate(STAGES):
            model, optimizer = list(MODELS)[(size + i) % 3], list(OPTIMIZERS)[i % 3]
            if world.rank < size:
                found[f"{kind}, {model}, {optimizer}, {size} ranks"] = on_ranks(comm, kind, model, optimizer)
    for kind in STAGES:
        found[f"{kind}, two nodes"] = on_ranks(world, kind, "transformer", "adamw", 2)
    if world.rank == 0:
        print(json.dumps(found))
