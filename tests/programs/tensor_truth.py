"""Training over the ranks of a tensor axis beside one process: how far losses and parameters are from it.

`mpirun -np 2 python tests/programs/tensor_truth.py` prints the largest difference of each way, on rank 0.
"""

import functools
import json

import torch

from mpcourse.models.gpt import Shape, gpt, token_loss
from mpcourse.tensor_parallel import Options, parallel_gpt, sum_partial_gradients, vocabulary_loss, whole_state

SHAPE = Shape(vocabulary=53, length=24, width=48, heads=24, layers=2)
STEPS, BATCH = 3, 3
WAYS = {
    "plain": Options(),
    "written out": Options(fused=False),
    "overlap": Options(overlap=True),
    "full recomputation": Options(recompute="full"),
    "sequence": Options(sequence=True),
    "sequence, selective": Options(sequence=True, fused=False, recompute="selective"),
    "sequence, full": Options(sequence=True, recompute="full"),
    "sequence, overlap": Options(sequence=True, overlap=True),
    "sequence, overlap, full": Options(sequence=True, overlap=True, recompute="full"),
}
FROZEN = ("first.", "positions", "qkv.", "0.weight", "0.tokens.weight")  # of the one process, and of the ranks


def batches():
    draw = torch.Generator().manual_seed(1)
    both = [torch.randint(SHAPE.vocabulary, (BATCH, SHAPE.length + 1), generator=draw) for _ in range(STEPS)]
    return [(tokens[:, :-1], tokens[:, 1:]) for tokens in both]


def freeze(model):
    for name, p in model.named_parameters():
        p.requires_grad_(not any(part in name for part in FROZEN))


def adamw(model):
    # With torch's own eps, 1e-8, it divides by numbers so small that rounding grows a hundredfold.
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2, eps=1e-6)


@functools.cache  # for all ranks of a process, and all ways
def one_process(tied, frozen):
    """Return the losses and the parameters of one process that trains the same model."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = gpt(SHAPE).double()
    if tied:
        model[-1].linear.weight = model[0].weight
    if frozen:
        freeze(model)
    optimizer, losses = adamw(model), []
    for tokens, targets in batches():
        optimizer.zero_grad()
        loss = token_loss(model(tokens), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: p.detach() for name, p in model.named_parameters(remove_duplicate=False)}


def over_ranks(comm, options, tied=False, frozen=False, device="cpu"):
    """Train as `one_process` does; return the largest difference of losses and of parameters."""
    torch.manual_seed(100 + comm.rank)  # ranks that draw different numbers must not differ in their models
    model = parallel_gpt(SHAPE, comm, options, tied=tied).to(device).double()
    if frozen:
        freeze(model)
    optimizer, found = adamw(model), []
    for tokens, targets in batches():
        optimizer.zero_grad()
        logits = model(tokens.to(device))
        loss = vocabulary_loss(comm, logits, targets.T.to(device), SHAPE.vocabulary)
        loss.backward()
        sum_partial_gradients(comm, model)
        optimizer.step()
        found.append(loss.item())
    losses, parameters = one_process(tied, frozen)
    off = [abs(a - b) for a, b in zip(found, losses, strict=True)]
    for name, whole in whole_state(comm, model).items():
        plain = name.replace("tokens.weight", "weight").replace("attention.", "").replace("mlp.", "")
        off.append((whole - parameters[plain]).abs().max().item())
    return max(comm.allgather(max(off)))


if __name__ == "__main__":
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    found = {name: over_ranks(world, options, tied="sequence" in name) for name, options in WAYS.items()}
    if world.rank == 0:
        print(json.dumps(found))
