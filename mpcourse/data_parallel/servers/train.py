"""Training with parameter servers: the first ranks serve, the others work."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from mpcourse.collectives import broadcast
from mpcourse.common.comm import Comm
from mpcourse.data_parallel.checked.finite import first_not_finite, not_finite
from mpcourse.data_parallel.create import create_communicator
from mpcourse.data_parallel.flat_buffers import FlatBuffers
from mpcourse.data_parallel.parameters import trained_parameters
from mpcourse.data_parallel.servers.policies import Asynchronous, Policy, Synchronous
from mpcourse.data_parallel.servers.record import Served
from mpcourse.data_parallel.servers.server import Server
from mpcourse.data_parallel.servers.shards import Shards
from mpcourse.data_parallel.servers.worker import Worker
from mpcourse.virtual import mpi_of


def train_with_servers(
    comm: Comm,
    model: nn.Module,
    make_optimizer: Callable[[list[torch.Tensor]], torch.optim.Optimizer],
    backward: Callable[[int], float],
    updates: int,
    policy: Policy | None = None,
    servers: int = 1,
    shards: str = "even",
    on_update: Callable[[int], None] | None = None,
) -> Served:
    """Train a model with servers that update it and workers that compute gradients; return what ranks recorded.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this. Ranks 0 to servers - 1 serve, the others
    work.
    model: the same on all ranks. Its values become rank 0's at the beginning, and the servers' on all ranks at the end.
    Buffers, such as batch norm's, stay each worker's own.
    make_optimizer: called with one row of numbers on each server, so it must treat each number alone, as SGD and Adam
    do.
    backward: on a worker, computes the gradients of its model at its next batch and returns the loss. It takes the
    number of earlier calls.
    updates: number of updates on each server, 0 or more.
    policy: when a server applies gradients; None: Asynchronous().
    servers: 1 to comm.size - 1.
    shards: "even": every server holds equally many numbers; "round_robin": whole parameters, in turn.
    on_update: called on the only server after each update, with its number; there, `model` holds the newest weights.
    None: not called.
    Raises, on every rank: ValueError for numbers that make no sense, or differ between ranks, or for different models;
    FloatingPointError, which names rank and parameter, for a gradient that is not finite; RankFailed where one has
    ended.
    """
    policy = policy or Asynchronous()
    _check(comm, servers, updates, policy, shards, on_update)
    communicator = create_communicator("flat", comm)
    comm, mpi = communicator.comm, mpi_of(comm)
    communicator.broadcast_parameters(model)
    held = trained_parameters(model)
    weights = Shards(list(held.values()), servers, shards)
    names = [list(held)[i] for i in weights.order]
    held = {name: held[name] for name in names}
    with torch.no_grad():
        for p, view in zip(held.values(), weights.flat.views, strict=True):
            view.copy_(p)
            p.data = view  # weights that arrive in the row are in the model
    flat = FlatBuffers(list(held.values()))
    losses, begun = list[float](), 0.0

    def compute() -> int | None:
        for p in held.values():
            p.grad = None
        losses.append(float(backward(len(losses))))
        gradients = {name: p.grad for name, p in held.items()}
        flat.fill(gradients.values())
        bad = first_not_finite(gradients)
        return None if bad is None else names.index(bad)

    side: Server | Worker
    if comm.rank < servers:
        own = nn.Parameter(weights.piece(comm.rank))
        workers = list(range(servers, comm.size))
        turn, optimizer = policy.begin(len(workers)), make_optimizer([own])
        clock = lambda: mpi.Wtime() - begun  # noqa: E731
        side = Server(communicator, own, optimizer, turn, workers, updates, on_update, clock)
    else:
        side = Worker(communicator, weights, flat.buffers[0], compute)
    communicator.exchange("begins its training")
    begun = mpi.Wtime()
    side.run()
    communicator.exchange("ends its training")  # first: a rank that raises ends, and others would report that
    if side.failure is not None:
        rank, parameter = side.failure
        raise not_finite(rank, names[parameter])
    for server in range(servers):
        broadcast(comm, weights.piece(server), server)
    by_rank = comm.allgather((side.pushes if isinstance(side, Server) else losses, mpi.Wtime() - begun))
    return Served(
        pushes=[pushes for pushes, _ in by_rank[:servers]],
        losses={rank: own for rank, (own, _) in enumerate(by_rank) if rank >= servers},
        seconds=max(seconds for _, seconds in by_rank),
    )


def _check(comm: Comm, servers: int, updates: int, policy: Policy, shards: str, on_update: Any) -> None:
    """Raise ValueError, on every rank, for settings that make no sense, or that differ between ranks."""
    settings = comm.allgather((servers, updates, repr(policy), shards))
    if len(set(settings)) > 1:
        at = next(i for i in range(len(settings[0])) if len({each[i] for each in settings}) > 1)
        name = ("servers", "updates", "policy", "shards")[at]
        raise ValueError(f"ranks were given different {name}: {[each[at] for each in settings]}")
    if not 1 <= servers < comm.size:
        raise ValueError(f"servers={servers}: of {comm.size} ranks, 1 to {comm.size - 1} can serve, and the rest work")
    if updates < 0:
        raise ValueError(f"updates={updates}: 0 or more")
    policy.begin(comm.size - servers)
    if servers > 1 and isinstance(policy, Synchronous) and policy.backup:
        raise ValueError("with backup workers there can be one server only: several might each drop another's gradient")
    if any(comm.allgather(on_update is not None and servers > 1)):
        raise ValueError("on_update sees the whole model, which no server has where there are several")
