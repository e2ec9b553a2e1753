"""Before ranks do something together each says what it is about to do: who does not come is told, not waited for.

A sum over ranks waits for all of them. Where one has ended, or does something else, the others would wait for ever and
say nothing. A roll call gathers a few bytes of each rank, which takes microseconds, and compares them.
"""

import struct
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from mpcourse.virtual import MPI, RankFailed, mpi_of

PATIENCE = 0.2  # seconds, after which it looks whether somebody has ended
NAME, LONGEST = 32, 4  # bytes, numbers


class RollCall:
    """All ranks of `comm` make one together, and call the same things in the same order.

    A real rank that ends, or lets its roll call go, tells the others so.
    """

    def __init__(self, comm: Any) -> None:
        self.comm, self._calls = comm.Dup(), np.zeros(1, np.int64)
        self._farewell = comm.Dup()  # where only those who end say something
        self._virtual = mpi_of(comm) is MPI
        if not self._virtual:
            weakref.finalize(self, _leave, self._farewell, self._calls)  # at exit at the latest

    def meet(self, doing: str, *numbers: int, meanwhile: Callable[[], object] = lambda: None) -> list[tuple[int, ...]]:
        """What each rank said as `numbers`, by rank. All ranks call it, each with as many of them, at most 4.

        meanwhile: what a real rank does, again and again, while it waits for the others.
        Raises RankFailed on every rank where they are about to do different things, or where one has ended.
        """
        self._calls += 1
        form = f"{NAME}s{LONGEST}q"
        own = np.frombuffer(struct.pack(form, doing.encode(), *numbers, *[0] * (LONGEST - len(numbers))), np.uint8)
        every = np.empty((self.comm.size, len(own)), np.uint8)
        if self._virtual:  # where a rank that does not come is told anyway
            self.comm.Allgather(own, every)
        else:
            self._gather(own, every, doing, meanwhile)
        found = [struct.unpack(form, row) for row in every]
        names = [row[0].rstrip(b"\0").decode() for row in found]
        if len(set(names)) > 1:
            told = ", ".join(f"rank {r} {name}" for r, name in enumerate(names))
            raise RankFailed(f"ranks do different things: {told}. All must call the same, in the same order")
        return [row[1 : 1 + len(numbers)] for row in found]

    def wait(self, request: Any, doing: str, status: Any = None) -> None:
        """Wait for a request of any communicator with these ranks. Raises RankFailed where one of them has ended.

        doing: as what it is told then.
        """
        if self._virtual:
            request.Wait(status)
        else:
            self._wait(request, doing, status)

    def _gather(self, own: np.ndarray, every: np.ndarray, doing: str, meanwhile: Callable[[], object]) -> None:
        """Everybody's row, in ceil(lg p) rounds (Bruck et al. 1997).

        By single messages: a receive that will never end can be taken back, and a collective call cannot.
        """
        comm, p = self.comm, self.comm.size
        rows, known = np.empty_like(every), 1  # of this rank, the next one, ...
        rows[0] = own
        while known < p:
            count = min(known, p - known)
            receiving = comm.Irecv(rows[known : known + count], (comm.rank + known) % p)
            sending = comm.Isend(rows[:count], (comm.rank - known) % p)
            try:
                self._wait(receiving, doing, meanwhile=meanwhile)
            except RankFailed:
                receiving.Cancel()
                receiving.Free()
                raise
            sending.Wait()
            known += count
        every[:] = np.roll(rows, comm.rank, 0)

    def _wait(
        self, request: Any, doing: str, status: Any = None, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        begun, asked = 0.0, 0
        while not request.Test(status):
            meanwhile()
            asked += 1
            if asked % 64:
                continue
            now = time.perf_counter()
            begun = begun or now
            time.sleep(0.001 if now - begun > PATIENCE else 0)  # others may need this core
            if now - begun > PATIENCE:
                self._listen(doing)

    def _listen(self, doing: str) -> None:
        """Raise RankFailed if somebody has said farewell."""
        status = mpi_of(self.comm).Status()
        if self._farewell.Iprobe(status=status):
            count = np.zeros(1, np.int64)
            self._farewell.Recv(count, status.source)
            raise RankFailed(
                f"rank {self.comm.rank} {doing} (its call {self._calls[0]}), and rank {status.source} has ended after "
                f"{count[0]} calls: do all ranks take the same number of steps, and none of them alone?"
            )


def _leave(farewell: Any, calls: np.ndarray) -> None:
    """Tell the others that this rank will not come again, after so many calls."""
    for rank in range(farewell.size):
        if rank != farewell.rank:
            farewell.Isend(calls, rank).Free()  # so short a message waits for nobody, and nobody may ever receive it
