"""A ring all-reduce that does not wait: it goes on whenever it is asked to, as between parts of a backward pass."""

from typing import Any

from mpcourse.collectives.numbers import Array, Op, add, cut, edges, empty_like, row, wire
from mpcourse.virtual import mpi_of

_under_way: set["PendingRing"] = set()  # MPI writes into their memory, even if nobody waits for them any more


class PendingRing:
    """The sum of x over all ranks, in place, begun. All ranks make one together, with the same tag.

    MPI moves what is under way, but nobody adds it up while this rank computes: `poll` does, and starts the next step.
    x must not be touched before `wait` returns. tag: sums that are under way at once need different ones. Bytes,
    messages and bits are those of `ring_allreduce`.
    """

    def __init__(self, comm: Any, x: Array, tag: int = 0, op: Op | None = None) -> None:
        own = row(x)
        self.comm, self.tag, self.op = comm, tag, op
        self._testall, self._waitall = mpi_of(comm).Request.Testall, mpi_of(comm).Request.Waitall
        edge = edges(len(own), comm.size)
        self._numbers, self._sent = cut(own, edge), cut(wire(own), edge)
        self._landing: Any = empty_like(own, max(map(len, self._numbers)))
        self._arrived = wire(self._landing)
        self._step = 0
        self._requests: list[Any] = []
        self._begin()

    def poll(self) -> bool:
        """Go on as far as messages have come; whether all is done."""
        while self._requests and self._testall(self._requests):
            self._finish_step()
        return not self._requests

    def wait(self) -> None:
        """Go on until all is done."""
        while self._requests:
            self._waitall(self._requests)
            self._finish_step()

    def _begin(self) -> None:
        """Send this step's chunk to the right, and be ready for the left one's."""
        p, rank = self.comm.size, self.comm.rank
        if self._step == 2 * (p - 1):
            self._requests = []
            _under_way.discard(self)
            return
        _under_way.add(self)
        begin = rank if self._adding else rank + 1
        round_ = self._step % (p - 1)
        sent, self._coming = self._sent[(begin - round_) % p], (begin - round_ - 1) % p
        into = self._arrived[: len(self._numbers[self._coming])] if self._adding else self._sent[self._coming]
        self._requests = [
            self.comm.Irecv(into, (rank - 1) % p, self.tag),
            self.comm.Isend(sent, (rank + 1) % p, self.tag),
        ]

    def _finish_step(self) -> None:
        if self._adding:
            numbers = self._numbers[self._coming]
            add(numbers, self._landing[: len(numbers)], self.op)
        self._step += 1
        self._begin()

    @property
    def _adding(self) -> bool:
        """Whether this is the first half, in which sums are made; in the second they go round."""
        return self._step < self.comm.size - 1
