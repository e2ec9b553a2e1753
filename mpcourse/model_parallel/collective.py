"""Collective calls that autograd sees. All ranks call each of them, forward and, by a loss on each rank, backward.

The rules of their backward passes follow from one convention: what is minimised is the sum of all ranks' losses. Then a
rank's gradient of x is the derivative of that sum with respect to its own x. (Where all ranks compute one and the same
loss, as in tensor parallelism, another rule holds; see `mpcourse.grid.tensor_parallel`.)

forward       backward
allreduce     allreduce: each rank's x is in every rank's sum
bcast         reduce to the root: its x is in every rank's result
allgather     all-to-all, and a sum: rank r returns the part of each gradient that belongs to the others
all_to_all    all_to_all: each part goes back the way that it came

Source: ChainerMN's functions of these names (chainermn/functions/collective_communication.py).
"""

from collections.abc import Sequence
from typing import Any

import torch

from mpcourse.collectives import allreduce as sum_over_ranks
from mpcourse.collectives import broadcast, reduce
from mpcourse.comm import Comm
from mpcourse.model_parallel.messages import exchange


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, x: torch.Tensor) -> torch.Tensor:
        ctx.comm = comm
        return summed(comm, x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, summed(ctx.comm, gradients[0])


class _Bcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, root: int, x: torch.Tensor, room: torch.Tensor) -> torch.Tensor:
        ctx.comm, ctx.root, ctx.device = comm, root, x.device
        broadcast(comm, room, root)
        return room.to(x.device)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        total = _copied(gradients[0])
        reduce(ctx.comm, total, root=ctx.root)
        return None, None, total.to(ctx.device) if ctx.comm.rank == ctx.root else torch.zeros(()), None


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.comm, ctx.device = comm, x.device
        return tuple(each.to(x.device, copy=True) for each in exchange(comm, [x.detach()] * comm.size))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor]:
        first, *others = exchange(ctx.comm, gradients)
        total = first.to(ctx.device, copy=True)
        for other in others:
            total += other.to(ctx.device)
        return None, total


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, *xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.comm, ctx.devices = comm, [x.device for x in xs]
        return tuple(x.to(xs[0].device, copy=True) for x in exchange(comm, [x.detach() for x in xs]))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        back = exchange(ctx.comm, gradients)
        return None, *[g.to(device) for g, device in zip(back, ctx.devices, strict=True)]


def allreduce(comm: Comm, x: torch.Tensor) -> torch.Tensor:
    """The sum of x over all ranks, on each; a new tensor on x's device. Backward: the sum of all ranks' gradients.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this, and run backward.
    x: of one shape and dtype on all ranks.
    """
    return _AllReduce.apply(comm, x)


def bcast(comm: Comm, x: torch.Tensor | None, root: int = 0) -> torch.Tensor:
    """x of one rank, on all ranks, on the CPU where a rank has none. Backward: the sum of gradients, to the root.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this, and run backward.
    x: on the root, of any shape and dtype; what others give is not looked at.
    root: a rank, the same on all ranks.
    Raises ValueError, on all ranks, for a root that there is not, or one without x.
    """
    if not 0 <= root < comm.size:
        raise ValueError(f"root is one of the ranks 0 to {comm.size - 1}, not {root}")
    mine = comm.rank == root and x is not None
    wanted = mine and torch.is_grad_enabled() and x is not None and x.requires_grad
    described = comm.bcast((tuple(x.shape), x.dtype, wanted) if mine and x is not None else None, root)
    if described is None:
        raise ValueError(f"rank {root} is the root of bcast: it needs x")
    shape, dtype, wanted = described
    room = _copied(x) if mine and x is not None else torch.empty(shape, dtype=dtype)
    if not wanted:
        broadcast(comm, room, root)
        return room if not mine or x is None else room.to(x.device)
    # Others have no x, but they do have gradients to give: a leaf that requires a gradient makes autograd ask for them.
    return _Bcast.apply(comm, root, x if mine else torch.zeros((), requires_grad=True), room)


def allgather(comm: Comm, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """x of each rank, on all ranks, in a tuple by rank. Backward: the sum of all ranks' gradients of this rank's x.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this, and run backward.
    x: its shape may differ between ranks.
    """
    return _AllGather.apply(comm, x)


def all_to_all(comm: Comm, xs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Rank r gets xs[r] of each rank, in a tuple by rank. Backward: gradients go back the same way.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this, and run backward.
    xs: one tensor for each rank; shapes may differ.
    Raises ValueError for another number of them.
    """
    if len(xs) != comm.size:
        raise ValueError(f"all_to_all takes a tensor for each of the {comm.size} ranks, not {len(xs)}")
    return _AllToAll.apply(comm, *xs)


def summed(comm: Comm, x: torch.Tensor) -> torch.Tensor:
    """A new tensor, the sum of x over all ranks, on x's device; autograd does not see it.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    x: of one shape and dtype on all ranks.
    """
    total = _copied(x)
    sum_over_ranks(comm, total)
    return total.to(x.device)


def _copied(x: torch.Tensor) -> torch.Tensor:
    """A contiguous copy in the host's memory."""
    return x.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
