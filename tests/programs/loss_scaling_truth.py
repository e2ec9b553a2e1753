"""Dynamic loss scaling over ranks beside one process: scales, skipped steps and weights.

`mpirun -np 3 python tests/programs/loss_scaling_truth.py` prints, on rank 0, the cases that differ on some rank.
"""

import functools
import itertools
import json

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.data_parallel import COMMUNICATORS, MultiNodeOptimizer, create_communicator
from mpcourse.zero import (
    OverlappedGradients,
    PrefetchedParameters,
    ShardedGradients,
    ShardedOptimizer,
    ShardedParameters,
)

STAGES = {
    each.__name__: each
    for each in (ShardedOptimizer, ShardedGradients, ShardedParameters, OverlappedGradients, PrefetchedParameters)
}
STEPS, SHARE, PARTS, CLIP = 10, 4, 2, 0.05  # examples of a rank in a step; micro-batches; the largest norm
BAD_STEPS = 2, 3, 9  # in which the loss of bad ranks is infinite
WAYS = "plain", "averaged", "clipped"  # what comes between backward and the scaler's step


class Heads(nn.Module):
    """A tied and a frozen layer, and a second head that only some steps use, on some ranks."""

    def __init__(self):
        super().__init__()
        self.first, self.frozen, self.last = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 5)
        self.heads = nn.ModuleList(nn.Linear(5, 3) for _ in range(2))
        self.last.weight = self.first.weight
        self.frozen.requires_grad_(False)

    def forward(self, x, head):
        x = self.last(torch.tanh(self.frozen(torch.tanh(self.first(x)))))
        return self.heads[head](x) + (self.heads[0](x) if head else 0)


def made(seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Heads()


def scaler_of(dtype):
    """In float16 gradients overflow as soon as the scale has grown twice, whatever the examples."""
    return torch.amp.GradScaler("cpu", init_scale=2.0**16 if dtype == torch.float16 else 8.0, growth_interval=2)


def loss_of(model, dtype, rank, step, part, bad, alike):
    """Of a micro-batch of one rank; the mean over its examples. alike: all ranks use the same head."""
    draw = torch.Generator().manual_seed(1000 * step + 10 * rank + part)
    x = torch.randn(SHARE // PARTS, 5, generator=draw)
    target = torch.randint(3, (SHARE // PARTS,), generator=draw)
    head = int(step % 3 == 1 and (alike or rank == 0 or step > 4))
    with torch.autocast("cpu", dtype=dtype):
        loss = F.cross_entropy(model(x, head).float(), target) / PARTS
    return loss * float("inf") if rank in bad and step in BAD_STEPS and part == 0 else loss


@functools.cache
def one_process(size, dtype, way, bad, zero):
    """One process that computes all ranks' micro-batches: the scale after each step, whether it was taken, weights.

    zero: as ZeRO does it: all ranks use the same head, and a gradient that is missing counts as zeros.
    """
    model, scaler, scales, taken = made(0), scaler_of(dtype), [], []
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank, part in itertools.product(range(size), range(PARTS)):
            scaler.scale(loss_of(model, dtype, rank, step, part, bad, zero)).backward()
        for p in model.parameters():
            if p.grad is not None:
                p.grad /= size
            elif zero and p.requires_grad:
                p.grad = torch.zeros_like(p)
        scaler.unscale_(optimizer)
        if way == "clipped":
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        before = model.first.weight.detach().clone()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        taken.append(not torch.equal(before, model.first.weight))
    return scales, taken, [p.detach() for p in model.parameters()]


def over_ranks(comm, kind, dtype, way, bad):
    """Do the same on this rank of several, which begin with different parameters."""
    model, scaler, scales, taken = made(comm.rank), scaler_of(dtype), [], []
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    optimizer = MultiNodeOptimizer(optimizer, create_communicator(kind, comm, **small(kind)))
    for step in range(STEPS):
        optimizer.zero_grad()
        with optimizer.no_sync():
            for part in range(PARTS - 1):
                scaler.scale(loss_of(model, dtype, comm.rank, step, part, bad, False)).backward()
        scaler.scale(loss_of(model, dtype, comm.rank, step, PARTS - 1, bad, False)).backward()
        if way != "plain":
            optimizer.mean_gradients()
        if way == "clipped":
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        before = model.first.weight.detach().clone()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        taken.append(not torch.equal(before, model.first.weight))
    return scales, taken, [p.detach() for p in model.parameters()]


def small(kind):
    """Buckets of a few parameters each."""
    return {"bucket_bytes": 100, "first_bucket_bytes": 50} if kind == "bucketed" else {}


def sharded(comm, kind, dtype, way, bad):
    """Do the same with ZeRO."""
    model, scaler, scales, taken = made(comm.rank), scaler_of(dtype), [], []
    options = {} if issubclass(STAGES[kind], ShardedParameters) else {"bucket_bytes": 100}
    if "layers" in STAGES[kind].__init__.__code__.co_varnames:
        options["layers"] = [model.first, model.last, *model.heads]
    optimizer = STAGES[kind](lambda groups: torch.optim.SGD(groups, 0.5, momentum=0.9), model, comm, **options)
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(PARTS):
            scaler.scale(loss_of(model, dtype, comm.rank, step, part, bad, True)).backward()
        if way == "averaged":
            optimizer.mean_gradients()
            scaler.unscale_(optimizer)
        scaler.step(optimizer, **({"clip": CLIP} if way == "clipped" else {}))
        steps = [state["momentum_buffer"].clone() for state in optimizer.optimizer.state.values()]
        scaler.update()
        scales.append(scaler.get_scale())
        taken.append(steps)
    moved = [not all(map(torch.equal, a, b)) or len(a) != len(b) for a, b in itertools.pairwise([[], *taken])]
    if isinstance(optimizer, ShardedParameters):
        with optimizer.whole():
            return scales, moved, [p.detach().clone() for p in model.parameters()]
    return scales, moved, [p.detach().clone() for p in model.parameters()]


def bad_ranks(size):
    return {"none": (), "first": (0,), "last": (size - 1,), "every other": tuple(range(0, size, 2))}


def differing(comm, kinds):
    """Return the cases in which some rank differs from one process, with what differs."""
    found = []
    for (j, kind), dtype in itertools.product(enumerate(kinds), (torch.float16, torch.bfloat16)):
        for i, (name, bad) in list(enumerate(bad_ranks(comm.size).items()))[j % 2 :: 2]:
            way = WAYS[(i + j) % 3]
            scales, taken, weights = one_process(comm.size, dtype, way, bad, kind in STAGES)
            assert taken.count(False) >= 3 or not bad, "the scale was to fall"
            assert len(set(scales)) > 2, "and to grow"
            program = over_ranks if kind in COMMUNICATORS else sharded
            own_scales, own_taken, own = program(comm, kind, dtype, way, bad)
            off = max((a - b).abs().max().item() for a, b in zip(own, weights, strict=True))
            wrong = [w for w, right in (("scales", own_scales == scales), ("steps", own_taken == taken)) if not right]
            wrong += [f"weights, by {off:.1e}"] if off > 2e-5 else []
            if wrong:
                found.append(f"{kind}, {dtype}, {way}, {name} of {comm.size}: {', '.join(wrong)}")
    return found


if __name__ == "__main__":
    from mpi4py import MPI

    torch.set_num_threads(1)
    found = MPI.COMM_WORLD.gather(differing(MPI.COMM_WORLD, [*COMMUNICATORS, *STAGES]))
    if found is not None:
        print(json.dumps(found))
