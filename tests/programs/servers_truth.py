"""Servers and workers train as one process does, where all wait for all; `check(comm)` on virtual and on real ranks."""

import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.data_parallel.servers import Asynchronous, BoundedStaleness, Synchronous, train_with_servers
from mpcourse.virtual import MPI, compute, mpi_of

STEPS, BATCH = 5, 12
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, 0.01),
}


class Tied(nn.Module):
    """Two layers with one weight, and a frozen one between them."""

    def __init__(self):
        super().__init__()
        self.first, self.frozen, self.last = nn.Linear(7, 7), nn.Linear(7, 7), nn.Linear(7, 7)
        self.last.weight = self.first.weight
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.last(torch.tanh(self.frozen(torch.tanh(self.first(x)))))


def batches(steps=STEPS):
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(steps, BATCH, 7, generator=generator, dtype=torch.float64)
    return list(zip(x, torch.randint(7, (steps, BATCH), generator=generator), strict=True))


def whole(start, make_optimizer, steps):
    """Return what one process makes of the model `start`; one row."""
    model = Tied().double()
    model.load_state_dict(start)
    optimizer = make_optimizer(model.parameters())
    for x, y in steps:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def trained(comm, make_optimizer, policy, servers, shards, updates, part=True, **options):
    """Return the model's numbers at the end, what was recorded, and what one process makes of rank 0's start."""
    torch.manual_seed(100 + comm.rank)
    model = Tied().double()
    start = comm.bcast({name: value.clone() for name, value in model.state_dict().items()})
    steps, workers, me = batches(updates), comm.size - servers, comm.rank - servers

    def backward(step):
        own = slice(BATCH * me // workers, BATCH * (me + 1) // workers) if part else slice(None)
        x, y = (each[own] for each in steps[step])
        loss = F.cross_entropy(model(x), y) * (len(y) * workers / BATCH if part else 1)
        loss.backward()
        return loss.item()

    served = train_with_servers(comm, model, make_optimizer, backward, updates, policy, servers, shards, **options)
    found = torch.cat([p.detach().flatten() for p in model.parameters()])
    return found, served, whole(start, make_optimizer, steps)


def check(comm):
    """Every case that fits so many ranks; None, or how far this rank's model is from one process's."""
    found = {}
    for servers in range(1, comm.size):
        for name, make in OPTIMIZERS.items():
            for shards in ("even", "round_robin"):
                mine, served, want = trained(comm, make, Synchronous(), servers, shards, STEPS)
                off = float((mine - want).abs().max())
                stale = any(push.staleness for pushes in served.pushes for push in pushes)
                found[f"{servers} {name} {shards}"] = None if off <= 1e-12 and not stale else off
    if comm.size > 2:  # nobody knows what comes out, but it is the same on all ranks, and every gradient is there
        for policy in (Asynchronous(), BoundedStaleness(1)):
            mine, served, _ = trained(comm, OPTIMIZERS["sgd"], policy, 1, "even", 2 * STEPS, part=False)
            rows = comm.allgather(mine)
            applied = sum(push.applied for push in served.pushes[0])
            found[repr(policy)] = None if all(torch.equal(r, mine) for r in rows) and applied == 2 * STEPS else applied
        found["nobody is further ahead than the bound"] = ahead(comm, bound=1)
        found["who is slow is not waited for"] = left_out(comm)
    return found


def with_a_slow_one(comm, policy):
    """Return what a server saw where the last rank takes long for each step."""

    def backward(step):
        if comm.rank == comm.size - 1:
            compute(comm, 0.02) if mpi_of(comm) is MPI else time.sleep(0.02)
        model(torch.ones(2, 3)).sum().backward()
        return 0.0

    model = nn.Linear(3, 2)
    return train_with_servers(comm, model, OPTIMIZERS["sgd"], backward, 4 * STEPS, policy).pushes[0]


def ahead(comm, bound):
    """None, or how far ahead of the slowest a worker was let begin a step."""
    done = dict.fromkeys(range(1, comm.size), 0)
    apart = []
    for push in with_a_slow_one(comm, BoundedStaleness(bound)):
        done[push.worker] += push.applied
        apart.append(max(done.values()) - min(done.values()) - 1)  # but for the step that it was let begin
    return None if len(apart) >= 4 * STEPS and max(apart) <= bound else max(apart, default=0)


def left_out(comm):
    """None, or how many gradients were used: all but one for each update. Those that came late were told so."""
    pushes = with_a_slow_one(comm, Synchronous(backup=1))
    applied = sum(push.applied for push in pushes)
    late = all(push.staleness > 0 for push in pushes if not push.applied)
    return None if applied == 4 * STEPS * (comm.size - 2) and late else applied


def refused(comm, case):
    """Return the error that this rank gets, with a mistake on rank 2."""

    def backward(step):
        if step == 3 and comm.rank == 3 and case == "not finite":
            time.sleep(0.6)  # longer than others wait for it before they look whether somebody has ended
        if step == 3 and comm.rank == 2:
            if case == "raises":
                raise ZeroDivisionError("this rank cannot")
            model[1].weight.grad = torch.full_like(model[1].weight, float("nan"))
        else:
            model(torch.ones(2, 3)).sum().backward()
        return 0.0

    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    try:
        train_with_servers(comm, model, OPTIMIZERS["sgd"], backward, 30, Asynchronous(), servers=2)
    except (FloatingPointError, mpi_of(comm).Exception) as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    from mpi4py import MPI

    torch.set_num_threads(1)
    comm = MPI.COMM_WORLD
    found = comm.gather(refused(comm, sys.argv[1]) if len(sys.argv) > 1 else check(comm))
    if found:
        json.dump(found, sys.stdout)
