"""Training a mixture of experts over ranks beside one process: how far losses and parameters are from it.

`mpirun -np 2 python tests/programs/experts_truth.py` prints the largest difference of each way, on rank 0.
"""

import functools
import json

import torch

from mpcourse.experts import Experts, MixtureGPT, average_gradients
from mpcourse.models.gpt import Shape, token_loss

SHAPE = Shape(vocabulary=23, length=7, width=12, heads=3, layers=2)
EXPERTS, STEPS, BATCH = 24, 3, 24  # sequences
WAYS = {"top 1": {}, "top 2": {"k": 2}, "top 3, renormalised": {"k": 3, "renormalise": True}}
FROZEN = ("router", "first_bias", "norm1.weight")


@functools.cache
def batches():
    draw = torch.Generator().manual_seed(1)
    texts = [torch.randint(SHAPE.vocabulary, (BATCH, SHAPE.length + 1), generator=draw) for _ in range(STEPS)]
    return [(text[:, :-1], text[:, 1:]) for text in texts]


def train(comm, experts, replicas, way, tied, frozen):
    """Train for STEPS steps; return losses, and by name the parameters and whether they are experts'."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = MixtureGPT(SHAPE, EXPERTS, experts, counted=comm, **WAYS[way]).double()
    if tied:
        model.head.linear.weight = model.embedding.weight
    for name, p in model.named_parameters():
        p.requires_grad_(not (frozen and any(part in name for part in FROZEN)))
    size, rank = (1, 0) if comm is None else (comm.size, comm.rank)
    optimizer, losses = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2, eps=1e-6), []
    for tokens, targets in batches():
        optimizer.zero_grad()
        logits, balance = model(tokens.chunk(size)[rank])
        loss = token_loss(logits, targets.chunk(size)[rank]) + 0.1 * balance
        loss.backward()
        average_gradients(comm, replicas, model)
        optimizer.step()
        losses.append(loss.item())
    of_experts = {id(p) for m in model.modules() if isinstance(m, Experts) for p in m.parameters()}
    return losses, {name: (p.detach(), id(p) in of_experts) for name, p in model.named_parameters()}


@functools.cache  # for all ranks of a process
def one_process(way, tied, frozen):
    return train(None, None, None, way, tied, frozen)


def over_ranks(comm, way, experts=None, tied=False, frozen=False):
    """Train as `one_process` does, with `experts` ranks in each expert axis; return the largest difference.

    comm: all ranks. experts: None: all of them in one axis.
    """
    torch.manual_seed(100 + comm.rank)  # ranks that draw different numbers must not differ in their models
    experts = experts or comm.size
    axis, replicas = comm.Split(comm.rank // experts, comm.rank), comm.Split(comm.rank % experts, comm.rank)
    losses, parameters = train(comm, axis, replicas, way, tied, frozen)
    wanted, whole = one_process(way, tied, frozen)
    losses = [sum(step) / comm.size for step in zip(*comm.allgather(losses), strict=True)]
    off = [abs(a - b) for a, b in zip(losses, wanted, strict=True)]
    each = EXPERTS // axis.size
    for name, (p, of_experts) in parameters.items():
        want = whole[name][0]
        off.append((p - (want[axis.rank * each : (axis.rank + 1) * each] if of_experts else want)).abs().max().item())
    return max(comm.allgather(max(off)))


if __name__ == "__main__":
    from mpi4py import MPI

    torch.set_num_threads(1)
    world = MPI.COMM_WORLD
    found = {name: over_ranks(world, name, tied=name == "top 2") for name in WAYS}
    found["in pairs"] = over_ranks(world, "top 2", 2)
    if world.rank == 0:
        print(json.dumps(found))
