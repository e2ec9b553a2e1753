"""Ranks that are late, and look after what is under way, at times of their own: virtual ones, or under mpirun."""

import random
import time

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.data_parallel import (
    COMMUNICATORS,
    create_communicator,
    create_multi_node_optimizer,
    fuse_weight_gradients,
)
from mpcourse.virtual import MPI, compute, mpi_of

BATCH, STEPS, SEEDS = 12, 5, 4
KINDS = (*COMMUNICATORS, "fused")  # bucketed, with layers that write their gradients into the buckets
DELAYS = (0, 0, 1e-6, 1e-4, 1e-2)  # seconds of a virtual clock; a tenth of them of a real one


def wait(comm, seconds):
    if mpi_of(comm) is MPI:
        compute(comm, seconds)
    else:
        time.sleep(seconds / 10)


def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def batches():
    generator = torch.Generator().manual_seed(8)
    x = torch.randn(STEPS, BATCH, 6, generator=generator, dtype=torch.float64)
    return list(zip(x, torch.randint(3, (STEPS, BATCH), generator=generator), strict=True))


def state(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def alone(double_buffering):
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.2, momentum=0.9)
    gradients = []
    for x, y in batches():
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        gradients.append([p.grad for p in net.parameters()])
        if not double_buffering:
            optimizer.step()
        elif len(gradients) > 1:
            apply(net, optimizer, gradients[-2])
    if double_buffering:
        apply(net, optimizer, gradients[-1])
    return state(net)


def apply(net, optimizer, gradients):
    for p, gradient in zip(net.parameters(), gradients, strict=True):
        p.grad = gradient
    optimizer.step()


def uneven(comm, kind, seed, double_buffering):
    draw = random.Random(1000 * seed + comm.rank)
    net = model()
    # Short buckets, so that several are under way at once; summed in shared memory, or by messages.
    short = {"bucket_bytes": 300, "first_bucket_bytes": 100}
    communicator = (
        create_communicator("bucketed", comm, 1 if seed % 2 else None, **short)
        if kind in ("bucketed", "fused")
        else create_communicator(kind, comm)
    )
    if kind == "fused":
        assert len(fuse_weight_gradients(net, 0)) == 3
    sgd = torch.optim.SGD(net.parameters(), 0.2, momentum=0.9)
    optimizer = create_multi_node_optimizer(sgd, communicator, double_buffering)

    def late(p=None):
        wait(comm, draw.choice(DELAYS))
        for _ in range(draw.choice((0, 0, 1, 3))):
            communicator.progress()
            optimizer._new_gradient(p)

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(late)
    each = BATCH // comm.size
    own = slice(comm.rank * each, (comm.rank + 1) * each)
    for x, y in batches():
        optimizer.zero_grad()
        late()
        F.cross_entropy(net(x[own]), y[own]).backward()
        late()
        optimizer.step()
    if double_buffering:
        optimizer.finish()
    return state(net)


def main():
    from mpi4py import MPI

    comm, off = MPI.COMM_WORLD, []
    torch.set_num_threads(1)
    for double_buffering in (False, True):
        wanted = alone(double_buffering)
        for kind in KINDS:
            for seed in range(SEEDS):
                found = uneven(comm, kind, seed, double_buffering)
                off.append((found - wanted).abs().max())
    told = comm.gather(float(torch.stack(off).max()))  # NaN, if there is one
    if comm.rank == 0:
        print(*told, flush=True)


if __name__ == "__main__":
    main()
