"""Collective calls that return new tensors, on whichever device, for tensor, context and expert parallelism.

Each takes a communicator: mpi4py's or a virtual rank's, whose messages leave from the host's memory; the `DeviceComm`
of a virtual GPU; or one that counts (`mpcourse.plan` has it). None, or one rank alone, sends nothing. Autograd sees
none of them.

An array is shared among ranks by its rows, the elements of its first dimension: all have the same number of rows, and
rank 0 has the first ones.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from mpcourse.collectives.buffers import chunks, mpi_buffer
from mpcourse.collectives.choose import allreduce
from mpcourse.collectives.fast.nonblocking import NonblockingRing
from mpcourse.collectives.ring import ring_allgather, ring_reduce_scatter
from mpcourse.common.comm import Comm, MpiRequest

Tensor = torch.Tensor


def own_rows(comm: Comm | None, rows: int, what: str = "rows") -> slice:
    """Return which rows are this rank's: as many as each other rank has. No message is sent.

    comm: of the ranks that call this; None: one rank, which has all rows.
    rows: their number on all ranks together.
    what: how the error calls them.
    Raises ValueError where they cannot be shared equally.
    """
    size, rank = (1, 0) if comm is None else (comm.size, comm.rank)
    if rows % size:
        raise ValueError(f"{rows} {what} cannot be shared alike by {size} ranks")
    each = rows // size
    return slice(rank * each, (rank + 1) * each)


def all_reduce(comm: Comm | None, x: Tensor, op: Any = None) -> Tensor:
    """Return the sum of x over all ranks, on x's device. All ranks call this.

    comm: of the ranks that call this; None: one rank.
    x: of one shape and dtype on all ranks. It is not changed.
    op: in place of the sum, an operation on two tensors, e.g. torch.maximum.

    A rank sends 2 (p - 1) / p times the bytes of x along a ring.
    """
    if comm is None or comm.size == 1:
        return x.detach()
    if (on_devices := getattr(comm, "all_reduce", None)) is not None:
        return on_devices(x.detach(), op)
    total = _on_host(x)
    allreduce(comm, total, op)
    return total.to(x.device)


def start_all_reduce(comm: Comm, x: Tensor) -> Callable[[], Tensor]:
    """Begin to sum x over all ranks; return a function that waits, and returns the sum. All ranks call both.

    comm: of two ranks or more.
    x: of one shape and dtype on all ranks. It is not changed.
    """
    if (on_devices := getattr(comm, "all_reduce", None)) is not None:
        total = on_devices(x.detach(), None, wait=False)
        return lambda: total
    total = _on_host(x)
    ring = NonblockingRing(comm, total)

    def wait() -> Tensor:
        ring.wait()
        return total.to(x.device)

    return wait


def sum_gradients(comm: Comm | None, parameters: Iterable[nn.Parameter], divisor: int = 1) -> None:
    """Add up the gradients of parameters over all ranks, and divide them. All ranks call this after backward.

    comm: of the ranks that call this; None: one rank.
    parameters: the same ones on all ranks, with gradients of one dtype, or None on all ranks. All gradients travel in
    one all-reduce.
    divisor: of the sums.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return
    flat = all_reduce(comm, torch.cat([g.reshape(-1) for g in gradients])) / divisor
    for gradient, total in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(total.view_as(gradient))


def all_gather(comm: Comm | None, x: Tensor) -> Tensor:
    """Return the rows of all ranks, (p rows, ...), on x's device. All ranks call this.

    comm: of the ranks that call this; None: one rank.
    x: this rank's rows, (rows, ...), of one shape and dtype on all ranks.

    A rank sends (p - 1) / p times the bytes of the result along a ring.
    """
    if comm is None or comm.size == 1:
        return x.detach()
    if (on_devices := getattr(comm, "all_gather", None)) is not None:
        return on_devices(x.detach())
    whole = torch.empty((comm.size * len(x), *x.shape[1:]), dtype=x.dtype)
    whole[own_rows(comm, len(whole))] = x.detach()
    ring_allgather(comm, _pieces(comm, whole))
    return whole.to(x.device)


def reduce_scatter(comm: Comm | None, x: Tensor) -> Tensor:
    """Return this rank's rows of the sum of x over all ranks, (rows / p, ...), on x's device. All ranks call this.

    comm: of the ranks that call this; None: one rank.
    x: (rows, ...), of one shape and dtype on all ranks. It is not changed.

    A rank sends (p - 1) / p times the bytes of x along a ring.
    Raises ValueError where the rows cannot be shared equally.
    """
    if comm is None or comm.size == 1:
        return x.detach()
    own = own_rows(comm, len(x))
    if (on_devices := getattr(comm, "reduce_scatter", None)) is not None:
        return on_devices(x.detach())
    sums = _on_host(x)
    ring_reduce_scatter(comm, _pieces(comm, sums))
    return sums[own].to(x.device, copy=True)


def all_to_all(comm: Comm, parts: Sequence[Tensor], shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    """Send parts[r] to each rank r, and return what each rank r has for this one. All ranks call it.

    comm: of the ranks that call this.
    parts: one tensor for each rank, of one dtype and on one device.
    shapes: of the tensors that arrive, in the order of ranks.

    In step s, each rank sends to the rank s after it, and receives from the rank s before it.
    """
    if (on_devices := getattr(comm, "all_to_all", None)) is not None:
        return on_devices(parts)
    device, dtype = parts[0].device, parts[0].dtype
    arrived: list[Any] = [None] * comm.size
    arrived[comm.rank] = parts[comm.rank].detach()
    for step in range(1, comm.size):
        to, source = (comm.rank + step) % comm.size, (comm.rank - step) % comm.size
        arriving = torch.empty(tuple(shapes[source]), dtype=dtype)
        leaving = parts[to].detach().cpu().contiguous()
        comm.Sendrecv(_buffer(leaving), to, 0, _buffer(arriving), source, 0)
        arrived[source] = arriving.to(device)
    return arrived


class Messages:
    """Messages between ranks, under way while a rank computes. All ranks make one together.

    comm: mpi4py's communicator, or a virtual rank's.
    shape, dtype, device: of every message.

    A rank sends one message to each other rank, and receives one from each. A context manager: at its end, all have
    left.
    """

    def __init__(self, comm: Comm, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
        self.comm, self.device = comm, device
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        self.arriving = {rank: torch.empty(shape, dtype=dtype) for rank in others}
        self.requests = {rank: comm.Irecv(_buffer(x), rank) for rank, x in self.arriving.items()}
        self.leaving: list[tuple[MpiRequest, Tensor]] = []  # the tensor must live until its message has left

    def send(self, x: Tensor, rank: int) -> None:
        """Begin to send x, without waiting.

        x: of the shape and dtype that were given; it must not change before the end.
        rank: another one than this.
        """
        there = x.detach().cpu().contiguous()
        self.leaving.append((self.comm.Isend(_buffer(there), rank), there))

    def receive(self, rank: int) -> Tensor:
        """Wait for the message of a rank, and return it.

        rank: another one than this.
        """
        self.requests[rank].Wait()
        return self.arriving[rank].to(self.device)

    def __enter__(self) -> "Messages":
        return self

    def __exit__(self, *error: object) -> None:
        for request, _ in self.leaving:
            request.Wait()


def messages(comm: Comm, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Messages:
    """Return messages of a communicator: those above, or a `DeviceComm`'s own.

    comm: of two ranks or more, which all call this.
    shape, dtype, device: of every message.
    """
    on_devices = getattr(comm, "messages", None)
    return Messages(comm, shape, dtype, device) if on_devices is None else on_devices()


def _buffer(x: Tensor) -> Any:
    return mpi_buffer(x.view(-1))


def _on_host(x: Tensor) -> Tensor:
    """Return a contiguous copy in the host's memory."""
    return x.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _pieces(comm: Comm, x: Tensor) -> list[Tensor]:
    """Return the rows of each rank as flat buffers on the same memory, in the order in which the ring leaves them.

    The ring leaves piece r + 1 on rank r, so rank r's rows are piece r + 1.
    """
    *first, last = chunks(x, comm.size)
    return [last, *first]
