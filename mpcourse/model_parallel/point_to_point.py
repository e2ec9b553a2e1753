"""Messages that autograd sees: what travels forward as an activation travels back as a gradient.

ChainerMN's functions of the same names (chainermn/functions, Akiba et al. 2017), for torch.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mpcourse.common.comm import Comm
from mpcourse.model_parallel.messages import receive_tensors, send_tensors

Tensors = torch.Tensor | Sequence[torch.Tensor]


class _Send(torch.autograd.Function):
    """Forward: send. Backward: receive the gradients of what was sent."""

    @staticmethod
    def forward(
        ctx: Any, comm: Comm, rank: int, tag: int, wanted: list[bool], before: torch.Tensor, *xs: torch.Tensor
    ) -> torch.Tensor:
        send_tensors(comm, xs, rank, tag, wanted)
        ctx.peer, ctx.wanted, ctx.devices = (comm, rank, tag), wanted, [x.device for x in xs]
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[Any, ...]:
        gradients: list[torch.Tensor | None] = [None] * len(ctx.wanted)
        if any(ctx.wanted):
            gradients, _flags = receive_tensors(*ctx.peer)
        moved = [None if g is None else g.to(device) for g, device in zip(gradients, ctx.devices, strict=True)]
        return None, None, None, None, torch.zeros(()), *moved


class _Recv(torch.autograd.Function):
    """Forward: pass on what was received. Backward: send its gradients to where it came from."""

    @staticmethod
    def forward(
        ctx: Any, comm: Comm, rank: int, tag: int, wanted: list[bool], before: torch.Tensor, *xs: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.peer, ctx.wanted = (comm, rank, tag), wanted
        ctx.set_materialize_grads(False)  # a tensor that was not used has no gradient, which takes no bytes
        ctx.mark_non_differentiable(*[x for x, w in zip(xs, wanted, strict=True) if not w])
        return torch.zeros(()), *xs

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        comm, rank, tag = ctx.peer
        if any(ctx.wanted):
            send_tensors(comm, [g if w else None for g, w in zip(gradients, ctx.wanted, strict=True)], rank, tag)
        return None, None, None, None, torch.zeros(()), *[None] * len(gradients)


class _PseudoConnect(torch.autograd.Function):
    """Forward: pass on xs. Backward: return their gradients, and a zero for the delegate, so that its graph runs."""

    @staticmethod
    def forward(ctx: Any, delegate: torch.Tensor, *xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(x.view_as(x) for x in xs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        return torch.zeros(()), *gradients


def send(x: Tensors, comm: Comm, rank: int, tag: int = 0, *, delegate: torch.Tensor | None = None) -> torch.Tensor:
    """Send a tensor, or several, to a rank that calls `recv`. In backward their gradients return from there.

    x: of any shapes, dtypes and devices. No gradient travels for a tensor that requires none.
    comm: mpi4py's communicator, or a virtual rank's.
    rank: the receiver; not this rank.
    tag: the receiver must use the same one.
    delegate: of an earlier call, whose backward has to come after this call's; None: there is none.

    The result, the **delegate**, is the number 0 with a graph: it represents what this rank's part has become on other
    ranks. `delegate.backward()` waits for the gradients; so does the backward pass of whatever it was given to, by
    `pseudo_connect` or as another call's `delegate`.
    Raises ValueError where `rank` is this rank or no rank.
    """
    _check_rank(comm, rank)
    xs = [x] if isinstance(x, torch.Tensor) else list(x)
    wanted = [torch.is_grad_enabled() and t.requires_grad for t in xs]
    return _Send.apply(comm, rank, tag, wanted, _begin(delegate), *xs)


def recv(comm: Comm, rank: int, delegate: torch.Tensor | None = None, tag: int = 0) -> Any:
    """Receive what a rank sends by `send`: a tensor, or a tuple, in the host's memory. Backward returns gradients.

    comm: mpi4py's communicator, or a virtual rank's.
    rank: the sender; not this rank.
    delegate: of an earlier `send` of this rank, whose backward has to come after this call's. Without it the graph of
    what was sent is not part of the graph of what is received.
    tag: the sender must use the same one.

    A tensor that required no gradient at its sender requires none here.
    Raises ValueError where `rank` is this rank or no rank; RuntimeError within no_grad, where the sender wants a
    gradient.
    """
    xs, _ = received(comm, rank, _begin(delegate), tag)
    return xs[0] if len(xs) == 1 else xs


def received(
    comm: Comm, rank: int, delegate: torch.Tensor, tag: int = 0
) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """Receive what a rank sends by `send`, as a tuple of tensors in the host's memory, and a delegate.

    comm: mpi4py's communicator, or a virtual rank's.
    rank: the sender; not this rank.
    delegate: of an earlier call, whose backward has to come after this call's.
    tag: the sender must use the same one.
    Raises ValueError where `rank` is this rank or no rank.
    """
    _check_rank(comm, rank)
    tensors, wanted = receive_tensors(comm, rank, tag)
    if any(wanted) and not torch.is_grad_enabled():
        raise RuntimeError(
            f"rank {comm.rank} receives within no_grad what rank {rank} wants a gradient of, and would wait for in "
            "backward: call send within no_grad, too"
        )
    after, *xs = _Recv.apply(comm, rank, tag, wanted, delegate, *tensors)
    return tuple(xs), after


def pseudo_connect(delegate: torch.Tensor, *xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return xs, and make the delegate's graph run in backward, too. No message is sent.

    delegate: what `send` returned.
    xs: tensors of any shapes.

    This is for a rank whose part of a model has several pieces that only other ranks join: autograd does not see that
    they belong together.
    """
    return _PseudoConnect.apply(delegate, *xs)


def _begin(delegate: torch.Tensor | None) -> torch.Tensor:
    """Return the delegate, or a leaf that requires a gradient, so that what follows has a graph."""
    return torch.zeros((), requires_grad=True) if delegate is None else delegate


def _check_rank(comm: Comm, rank: int) -> None:
    if not 0 <= rank < comm.size:
        raise ValueError(f"there is no rank {rank}: this communicator has ranks 0 to {comm.size - 1}")
    if rank == comm.rank:
        raise ValueError(f"rank {rank} cannot send to itself: each of send and recv would wait for the other")
