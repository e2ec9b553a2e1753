"""All-gather and reduce-scatter that do not wait: each rank sends to all others at once, and receives from them."""

import torch

from mpcourse.collectives.buffers import mpi_buffer
from mpcourse.common.comm import Comm, MpiRequest
from mpcourse.data_parallel.host_staging import to_host
from mpcourse.virtual import mpi_of
from mpcourse.zero.messages import alias

_in_flight: set["_Request"] = set()  # MPI uses their memory, even if no caller holds them any more


class _Request:
    """Messages in flight between this rank and all others."""

    name = ""

    def __init__(self, comm: Comm, flat: torch.Tensor, tag: int) -> None:
        self.comm, self.flat, self.tag = comm, flat, tag
        self.requests: list[MpiRequest] = []
        self.host = flat
        if (count := getattr(comm, "count", None)) is not None:  # an AloneComm
            count(self.name, flat.nbytes)
            return
        self.host = alias(flat) if flat.device.type == "cpu" else to_host(flat)
        self._calls = mpi_of(comm).Request
        _in_flight.add(self)
        self._start([(comm.rank + i) % comm.size for i in range(1, comm.size)], self.host.view(comm.size, -1))

    def _start(self, others: list[int], chunks: torch.Tensor) -> None:
        """Begin to send. others: the other ranks, the next one first. chunks: one per rank."""

    def test(self) -> bool:
        """Let messages proceed, without waiting; return whether all have arrived."""
        return not self.requests or self._calls.Testall(self.requests)

    def _arrive(self) -> None:
        if self.requests:
            self._calls.Waitall(self.requests)
        self.requests = []
        _in_flight.discard(self)


class AllGather(_Request):
    """Chunk r of rank r's `flat` is being copied into all others' `flat`. All ranks make one, with the same tag.

    comm: mpi4py's communicator, or a virtual rank's, of p ranks; nothing else in it may use the same tags.
    flat: (p * chunk,), contiguous, the same length and dtype on all ranks; do not touch it before `wait` returns.
    tag: of its messages, 0 or more.

    Each rank sends (p - 1) / p of flat's bytes, in p - 1 messages.
    """

    name = "all-gather"

    def _start(self, others: list[int], chunks: torch.Tensor) -> None:
        own = mpi_buffer(chunks[self.comm.rank])
        self.requests = [self.comm.Irecv(mpi_buffer(chunks[r]), r, self.tag) for r in others]
        self.requests += [self.comm.Isend(own, r, self.tag) for r in others]

    def wait(self) -> None:
        """Wait for the chunks of all other ranks."""
        self._arrive()
        if self.host.data_ptr() != self.flat.data_ptr():
            self.flat.copy_(self.host)


class ReduceScatter(_Request):
    """Chunk r of all ranks' `flat` is being summed on rank r. All ranks make one, with the same tag.

    comm: mpi4py's communicator, or a virtual rank's, of p ranks; nothing else in it may use the same tags.
    flat: (p * chunk,), contiguous, the same length and dtype on all ranks; do not touch it before `wait` returns.
    tag: of its messages, 0 or more.

    Each rank sends (p - 1) / p of flat's bytes, in p - 1 messages, and has memory for as many bytes that arrive.
    """

    name = "reduce-scatter"
    _received: torch.Tensor | None = None

    def _start(self, others: list[int], chunks: torch.Tensor) -> None:
        self._received = torch.empty_like(chunks)
        self.requests = [self.comm.Irecv(mpi_buffer(self._received[r]), r, self.tag) for r in others]
        self.requests += [self.comm.Isend(mpi_buffer(chunks[r]), r, self.tag) for r in others]

    def wait(self) -> torch.Tensor:
        """Wait for this rank's chunk of the sum, and return it; (chunk,), in memory of its own."""
        self._arrive()
        own = self.host.view(self.comm.size, -1)[self.comm.rank]
        if self._received is None:  # nothing was sent
            return own.clone()
        self._received[self.comm.rank] = own
        return self._received.sum(0).to(self.flat.device)
