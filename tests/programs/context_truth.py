"""Training with shared sequences beside one process: how far losses and parameters are from it.

`mpirun -np 2 python tests/programs/context_truth.py` prints the largest difference of each way, on rank 0.
"""

import functools
import itertools
import json

import torch

from mpcourse.context_parallel import LAYOUTS, ContextGPT, SharedSequence, mean_token_loss, sum_gradients
from mpcourse.models.gpt import Shape

SHAPE = Shape(vocabulary=53, length=29, width=48, heads=24, layers=2)
STEPS, BATCH = 3, 2
KINDS = {"ring": {}, "written out": {"fused": False}, "gather": {}, "ulysses": {}}
WAYS = list(itertools.product(KINDS, LAYOUTS, (False, True)))  # how, layout, with documents
FROZEN = ("layers.0.positions", "qkv.bias", "first.")


@functools.cache
def batches(documents):
    """Return tokens, targets and documents of each step. Targets at the end of a document and padding do not count."""
    draw, found = torch.Generator().manual_seed(1), []
    for _ in range(STEPS):
        text = torch.randint(SHAPE.vocabulary, (BATCH, SHAPE.length + 1), generator=draw)
        tokens, targets, of = text[:, :-1], text[:, 1:].clone(), None
        if documents:
            of = torch.randint(0, 3, (BATCH, SHAPE.length), generator=draw).sort(1).values
            of[1, -5:] = -1
            targets[:, :-1][of[:, :-1] != of[:, 1:]] = -100
            targets[of < 0] = -100
        found.append((tokens, targets, of))
    return found


def train(comm, how, layout, documents, tied, frozen, device="cpu"):
    """Train for STEPS steps; return losses and parameters."""
    way = "ring" if how == "written out" else how
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = ContextGPT(SHAPE, way, **KINDS[how]).double().to(device)
    if tied:
        model.layers[-1].linear.weight = model.layers[0].weight
    for name, p in model.named_parameters():
        p.requires_grad_(not (frozen and any(part in name for part in FROZEN)))
    optimizer, losses = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2, eps=1e-6), []
    for tokens, targets, of in batches(documents):
        shared = SharedSequence(comm, SHAPE.length, layout, of)
        optimizer.zero_grad()
        logits = model(shared.own(tokens).to(device), shared)
        loss = mean_token_loss(comm, logits, shared.own(targets).to(device))
        loss.backward()
        sum_gradients(comm, model.parameters())
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().cpu() for p in model.parameters()]


@functools.cache  # for all ranks of a process, and all ways
def one_process(documents, tied, frozen):
    return train(None, "written out", "contiguous", documents, tied, frozen)


def over_ranks(comm, how, layout, documents, tied=False, frozen=False, device="cpu"):
    """Train as `one_process` does; return the largest difference of losses and of parameters."""
    torch.manual_seed(100 + comm.rank)  # ranks that draw different numbers must not differ in their models
    losses, parameters = train(comm, how, layout, documents, tied, frozen, device)
    wanted, wanted_parameters = one_process(documents, tied, frozen)
    off = [abs(a - b) for a, b in zip(losses, wanted, strict=True)]
    off += [(a - b).abs().max().item() for a, b in zip(parameters, wanted_parameters, strict=True)]
    return max(comm.allgather(max(off)))


if __name__ == "__main__":
    from mpi4py import MPI

    torch.set_num_threads(1)
    found = {str(way): over_ranks(MPI.COMM_WORLD, *way, tied=way[2]) for way in WAYS}
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(found))
