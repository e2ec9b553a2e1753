"""Tensors between ranks whose shapes only the sender knows: first their descriptions are sent, then their data."""

from collections.abc import Sequence

import torch

from mpcourse.collectives.buffers import flatten, mpi_buffer
from mpcourse.common.comm import Comm

# Of one tensor: its shape, its dtype, and whether its sender wants a gradient. None: no tensor, as for a missing
# gradient.
Description = tuple[tuple[int, ...], torch.dtype, bool] | None


def send_tensors(
    comm: Comm, tensors: Sequence[torch.Tensor | None], rank: int, tag: int, wanted: Sequence[bool] = ()
) -> None:
    """Send tensors to a rank that calls `receive_tensors`.

    comm: mpi4py's communicator, or a virtual rank's.
    tensors: of any shape, dtype and device; None: no tensor, as for a missing gradient.
    rank: the receiver.
    tag: the receiver must use the same one.
    wanted: for each tensor, whether its sender waits for a gradient afterwards; (): for none.
    """
    comm.send(_described(tensors, wanted), rank, tag)
    for tensor in tensors:
        if tensor is not None:
            comm.Send(mpi_buffer(_in_host_memory(tensor)), rank, tag)


def receive_tensors(comm: Comm, rank: int, tag: int) -> tuple[list[torch.Tensor | None], list[bool]]:
    """Return what a rank sent by `send_tensors`, in the host's memory, and for each whether it wants a gradient.

    comm: mpi4py's communicator, or a virtual rank's.
    rank: the sender.
    tag: the sender must use the same one.
    """
    described = comm.recv(None, rank, tag)
    received = [_room_for(each) for each in described]
    for tensor in received:
        if tensor is not None:
            comm.Recv(mpi_buffer(tensor.view(-1)), rank, tag)
    return received, [each is not None and each[2] for each in described]


def exchange(comm: Comm, outgoing: Sequence[torch.Tensor], among: Sequence[int] | None = None) -> list[torch.Tensor]:
    """Exchange tensors all-to-all: rank r gets this rank's outgoing[r]; result[r] is what rank r had for this one.

    comm: mpi4py's communicator, or a virtual rank's.
    outgoing: one tensor for each rank; shapes and dtypes may differ.
    among: the ranks that call this, in ascending order; other elements of the result mean nothing. None: all ranks.

    Pairwise exchange (Thakur et al. 2005): in step k a rank sends to the rank k after it, and receives from the rank k
    before it, so that no two ranks send to the same one.
    """
    ranks = list(range(comm.size)) if among is None else list(among)
    p, own = len(ranks), ranks.index(comm.rank)
    incoming: list[torch.Tensor] = [outgoing[comm.rank]] * comm.size
    for step in range(1, p):
        to, source = ranks[(own + step) % p], ranks[(own - step) % p]
        (described,) = comm.sendrecv(_described([outgoing[to]]), to, 0, None, source, 0)
        arrived = _room_for(described)
        assert arrived is not None
        comm.Sendrecv(mpi_buffer(_in_host_memory(outgoing[to])), to, 0, mpi_buffer(arrived.view(-1)), source, 0)
        incoming[source] = arrived
    return incoming


def _described(tensors: Sequence[torch.Tensor | None], wanted: Sequence[bool] = ()) -> list[Description]:
    wanted = wanted or [False] * len(tensors)
    return [None if t is None else (tuple(t.shape), t.dtype, w) for t, w in zip(tensors, wanted, strict=True)]


def _room_for(described: Description) -> torch.Tensor | None:
    return None if described is None else torch.empty(described[0], dtype=described[1])


def _in_host_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return all elements as one flat buffer; a copy, unless they already are one."""
    return flatten(tensor.detach().cpu().contiguous())
