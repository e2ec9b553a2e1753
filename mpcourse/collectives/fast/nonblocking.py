"""A ring all-reduce that does not wait: it proceeds when it is called, for example between parts of a backward pass."""

from typing import Generic, Protocol

from mpcourse.collectives.buffers import Array, Op, accumulate, chunks, empty_like, mpi_buffer
from mpcourse.common.comm import Comm, MpiRequest
from mpcourse.virtual import mpi_of


class Request(Protocol):
    """An operation that has begun, like MPI's requests."""

    def test(self) -> bool:
        """Proceed as far as possible without waiting; return whether all is done."""
        ...

    def wait(self) -> None:
        """Proceed until all is done."""
        ...


_in_flight: set["NonblockingRing"] = set()  # MPI writes into their memory, even if no caller holds them any more


class NonblockingRing(Generic[Array]):
    """A sum of x over all p ranks, in place, that has begun. All ranks make one together, with the same tag.

    comm: mpi4py's communicator, or a virtual rank's.
    x: a contiguous numpy array or CPU tensor of any shape; length and dtype are the same on all ranks. Do not touch it
    before `wait` returns or `test` returns True.
    tag: all-reduces that are in flight at once need different ones.
    op: an associative and commutative operation on two flat buffers; None: the sum.

    MPI moves messages while this rank computes, but does not add them up: `test` does, and starts the next step. Each
    rank sends 2 (p - 1) messages, together 2 n (p - 1) / p bytes of the n of x. The bits are those of `ring_allreduce`.
    Raises TypeError where x is neither an array nor a tensor; ValueError where it is not contiguous, not writeable, or
    not in the host's memory.
    """

    def __init__(self, comm: Comm, x: Array, tag: int = 0, op: Op | None = None) -> None:
        self.comm, self.tag, self.op = comm, tag, op
        requests = mpi_of(comm).Request
        self._testall, self._waitall = requests.Testall, requests.Waitall
        self._chunks: list[Array] = chunks(x, comm.size)
        self._buffers = [mpi_buffer(chunk) for chunk in self._chunks]
        self._received: Array = empty_like(self._chunks[-1])  # the last chunk is as long as any
        self._step = 0
        self._requests: list[MpiRequest] = []
        self._start_step()

    def test(self) -> bool:
        """Proceed as far as messages have arrived; return whether all is done."""
        while self._requests and self._testall(self._requests):
            self._finish_step()
        return not self._requests

    def wait(self) -> None:
        """Proceed until all is done."""
        while self._requests:
            self._waitall(self._requests)
            self._finish_step()

    def _start_step(self) -> None:
        """Send this step's chunk to the right neighbour, and begin to receive the left neighbour's."""
        p, rank = self.comm.size, self.comm.rank
        if self._step == 2 * (p - 1):
            self._requests = []
            _in_flight.discard(self)
            return
        _in_flight.add(self)
        first = rank if self._reducing else rank + 1
        at = self._step % (p - 1)
        sent, self._arriving = self._buffers[(first - at) % p], (first - at - 1) % p
        into = self._buffers[self._arriving]
        if self._reducing:
            into = mpi_buffer(self._received[: len(self._chunks[self._arriving])])
        self._requests = [
            self.comm.Irecv(into, (rank - 1) % p, self.tag),
            self.comm.Isend(sent, (rank + 1) % p, self.tag),
        ]

    def _finish_step(self) -> None:
        if self._reducing:
            theirs = self._chunks[self._arriving]
            accumulate(theirs, self._received[: len(theirs)], self.op)
        self._step += 1
        self._start_step()

    @property
    def _reducing(self) -> bool:
        """Whether this step is part of the reduce-scatter; the all-gather follows it."""
        return self._step < self.comm.size - 1
