"""Collective calls that autograd sees. All ranks make each call, forward and, by a loss on each rank, backward.

The rules of their backward passes follow from one convention: training minimises the sum of all ranks' losses. Then a
rank's gradient of x is the derivative of that sum with respect to its own x. (Where all ranks compute one and the same
loss, as in tensor parallelism, another rule holds; see `mpcourse.tensor_parallel`.)

forward       backward
allreduce     allreduce: each rank's x is in every rank's sum
bcast         reduce to the root: its x is in every rank's result
allgather     all-to-all, and a sum: rank r returns the part of each gradient that belongs to the others
all_to_all    all_to_all: each part returns the way it came

A rank takes part in backward if gradients are enabled on it, whether or not its own x requires one, as soon as any
rank's x does: the results of all ranks depend on that x. Ranks within `no_grad` add nothing, and are left out.

Source: ChainerMN's functions of these names (chainermn/functions/collective_communication.py).
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from mpcourse.collectives import allreduce as sum_over_ranks
from mpcourse.collectives import broadcast, reduce
from mpcourse.common.comm import Comm
from mpcourse.common.errors import RankFailed
from mpcourse.model_parallel.messages import exchange
from mpcourse.virtual.ranks.errors import Deadlock

DEPEND = (
    "Where a rank's loss does not depend on a result, its backward pass does not reach the call, and the others wait: "
    "add 0 * result.sum() to the loss"
)


class Call(NamedTuple):
    """One call of one of these functions, by all ranks.

    name: of the function.
    number: drawn by rank 0, so that backward distinguishes two calls of one function.
    among: the ranks that take part in backward.
    """

    name: str
    number: int
    among: list[int]


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, call: Call, leaf: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        ctx.comm, ctx.call = comm, call
        return summed(comm, x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        with _backward(ctx.comm, ctx.call):
            everyone = len(ctx.call.among) == ctx.comm.size
            total = summed(ctx.comm, gradients[0]) if everyone else _sum_of_some(ctx.comm, ctx.call.among, gradients[0])
        return None, None, None, total


class _Bcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, call: Call, root: int, x: torch.Tensor, room: torch.Tensor) -> torch.Tensor:
        ctx.comm, ctx.call, ctx.root, ctx.like = comm, call, root, torch.empty_like(x, device="meta")
        ctx.device = x.device
        broadcast(comm, room, root)
        return room.to(x.device)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        total = _copied(gradients[0])
        with _backward(ctx.comm, ctx.call):
            if len(ctx.call.among) == ctx.comm.size:
                reduce(ctx.comm, total, root=ctx.root)
            else:
                total = _sum_of_some(ctx.comm, ctx.call.among, total)
        if ctx.comm.rank != ctx.root:
            total = torch.zeros_like(ctx.like, device=ctx.device)
        return None, None, None, total.to(ctx.device), None


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, call: Call, leaf: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.comm, ctx.call, ctx.device = comm, call, x.device
        return tuple(each.to(x.device, copy=True) for each in exchange(comm, [x.detach()] * comm.size))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        with _backward(ctx.comm, ctx.call):
            back = exchange(ctx.comm, gradients, ctx.call.among)
        first, *others = [back[rank] for rank in ctx.call.among]
        total = first.to(ctx.device, copy=True)
        for other in others:
            total += other.to(ctx.device)
        return None, None, None, total


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, call: Call, leaf: torch.Tensor, *xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.comm, ctx.call, ctx.like = comm, call, [torch.empty_like(x, device="meta") for x in xs]
        ctx.devices = [x.device for x in xs]
        return tuple(x.to(xs[0].device, copy=True) for x in exchange(comm, [x.detach() for x in xs]))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        with _backward(ctx.comm, ctx.call):
            back = exchange(ctx.comm, gradients, ctx.call.among)
        of_xs = [
            back[rank].to(device) if rank in ctx.call.among else torch.zeros_like(like, device=device)
            for rank, (like, device) in enumerate(zip(ctx.like, ctx.devices, strict=True))
        ]
        return None, None, None, *of_xs


def allreduce(comm: Comm, x: torch.Tensor) -> torch.Tensor:
    """Return the sum of x over all ranks, a new tensor on x's device. Backward: the sum of all ranks' gradients.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this, and run backward.
    x: of one shape and dtype on all ranks; it may require a gradient on some ranks only.
    Raises RankFailed, on all ranks, where ranks call different functions; ValueError for different shapes or dtypes.
    """
    call = _begin(comm, "allreduce", [x], alike=True)
    return _AllReduce.apply(comm, call, _leaf(), x) if call.among else summed(comm, x)


def bcast(comm: Comm, x: torch.Tensor | None, root: int = 0) -> torch.Tensor:
    """Return x of one rank on all ranks; on the CPU where a rank has none. Backward: sum gradients to the root.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this, and run backward.
    x: on the root, of any shape and dtype. On other ranks it does not influence the result, and its gradient is zero.
    root: a rank, the same on all ranks.
    Raises ValueError, on all ranks, where `root` is no rank, or has no x; RankFailed where ranks call different
    different functions.
    """
    if not 0 <= root < comm.size:
        raise ValueError(f"root is one of the ranks 0 to {comm.size - 1}, not {root}")
    mine = x is not None and comm.rank == root
    # Others' x does not matter, but its graph does: it may hold collective calls whose backward other ranks wait for.
    given = [x] if x is not None else []
    call = _begin(comm, "bcast", given, root=root)
    described = comm.bcast((tuple(x.shape), x.dtype) if mine and x is not None else None, root)
    if described is None:
        raise ValueError(f"rank {root} is the root of bcast: it needs x")
    room = _copied(x) if mine and x is not None else torch.empty(described[0], dtype=described[1])
    if call.among:
        return _Bcast.apply(comm, call, root, x if x is not None and x.requires_grad else _leaf(), room)
    broadcast(comm, room, root)
    return room.to(x.device) if mine and x is not None else room


def allgather(comm: Comm, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return x of each rank, in a tuple by rank. Backward: the sum of all ranks' gradients of this rank's x.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this, and run backward.
    x: its shape may differ between ranks; it may require a gradient on some ranks only.
    Raises RankFailed, on all ranks, where ranks call different functions.
    """
    call = _begin(comm, "allgather", [x])
    with contextlib.nullcontext() if call.among else torch.no_grad():
        return _AllGather.apply(comm, call, _leaf(), x)


def all_to_all(comm: Comm, xs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Give rank r the tensor xs[r] of each rank, in a tuple by rank. Backward: gradients return the same way.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this, and run backward.
    xs: one tensor for each rank; shapes may differ, and only some may require a gradient.
    Raises ValueError for another number of tensors; RankFailed, on all ranks, where ranks call different functions.
    """
    if len(xs) != comm.size:
        raise ValueError(f"all_to_all takes a tensor for each of the {comm.size} ranks, not {len(xs)}")
    call = _begin(comm, "all_to_all", xs)
    with contextlib.nullcontext() if call.among else torch.no_grad():
        return _AllToAll.apply(comm, call, _leaf(), *xs)


def summed(comm: Comm, x: torch.Tensor) -> torch.Tensor:
    """Return the sum of x over all ranks, a new tensor on x's device; autograd does not see it.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    x: of one shape and dtype on all ranks.
    """
    total = _copied(x)
    sum_over_ranks(comm, total)
    return total.to(x.device)


def _copied(x: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy in the host's memory."""
    return x.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _begin(comm: Comm, name: str, xs: Sequence[torch.Tensor], *, alike: bool = False, root: int | None = None) -> Call:
    """Check that all ranks make this call, and find those that take part in backward: none if no gradient is wanted.

    name: of the function. alike: shapes and dtypes must be the same on all ranks. root: the only rank whose gradient
    counts; None: all count.
    """
    enabled = torch.is_grad_enabled()
    wanted = enabled and any(x.requires_grad for x in xs)
    described = [f"{tuple(x.shape)} {x.dtype}".replace("torch.", "") for x in xs] if alike else []
    said = comm.allgather((name, int.from_bytes(os.urandom(4), "big"), enabled, wanted, root, described))
    _same_call([theirs for theirs, *_ in said])
    for rank, (*_, its_root, theirs) in enumerate(said):
        if its_root != said[0][-2]:
            raise ValueError(f"the root of {name} is rank {said[0][-2]} on rank 0, and rank {its_root} on rank {rank}")
        if theirs != said[0][-1]:
            raise ValueError(
                f"{name} needs one shape and dtype on all ranks: x is {said[0][-1][0]} on rank 0, and {theirs[0]} on "
                f"rank {rank}"
            )
    counts = any(each[3] for each in said) if root is None else said[root][3]
    return Call(name, said[0][1], [rank for rank, each in enumerate(said) if each[2] and counts])


def _same_call(calls: Sequence[str]) -> None:
    """Raise RankFailed unless all ranks make the same call."""
    if len(set(calls)) > 1:
        told = ", ".join(f"rank {rank} runs {call}" for rank, call in enumerate(calls))
        raise RankFailed(
            f"ranks do different things: {told}. All must call the same functions in the same order. {DEPEND}"
        )


@contextlib.contextmanager
def _backward(comm: Comm, call: Call) -> Iterator[None]:
    """Check, around what a call's backward sends, that all ranks run it, and explain where one does not."""
    doing = f"the backward pass of {call.name}"
    try:
        if len(call.among) == comm.size:
            said = comm.allgather((doing, call.number))
            _same_call([theirs for theirs, *_ in said])
            numbers = [number for _, number, *_ in said]
        else:
            there = exchange(comm, [torch.tensor([call.number])] * comm.size, call.among)
            numbers = [int(there[rank]) for rank in call.among]
        if len(set(numbers)) > 1:
            raise RankFailed(f"ranks run {doing}, but of different calls. {DEPEND}")
        yield
    except Deadlock as error:
        error.add_note(f"rank {comm.rank} waits in {doing}. {DEPEND}")
        raise


def _sum_of_some(comm: Comm, among: Sequence[int], x: torch.Tensor) -> torch.Tensor:
    """Return the sum of x over some ranks, a new tensor on x's device. Those ranks call it."""
    parts = exchange(comm, [x.detach()] * comm.size, among)
    return torch.stack([parts[rank].to(x.device) for rank in among]).sum(0)


def _leaf() -> torch.Tensor:
    """Return a leaf that makes autograd ask a rank for gradients even if its own x requires none."""
    return torch.zeros((), requires_grad=True)
