"""Sums in memory that all ranks of one machine share: no message moves the numbers (MPI-3; Hoefler et al. 2013).

A message between ranks of one machine is copied at least once before it is added up, and its sum is copied back. Here
each rank adds up its part of all rows where they lie, and writes the sum into all of them.
"""

import math
import time
from typing import Any

import numpy as np
import torch

BLOCK = 1 << 17  # numbers that are added up at once: they stay in the core's cache
READY, DONE, BAD_RANK, BAD_PLACE = range(4)  # what a rank tells the others


class SharedRow:
    """A row of `length` numbers for each rank of `comm`, of real ranks of one machine, which all make one together.

    row: this rank's own, a CPU tensor. `begin` says that it is filled; `poll` and `wait` go on with the sum, after
    which all rows hold it, in the same bits. Nobody waits in begin or poll.
    """

    def __init__(self, comm: Any, length: int, dtype: torch.dtype) -> None:
        self.comm, self._steps, self._summed, self._scale = comm, 0, 0, 1.0
        nbytes = length * dtype.itemsize
        self._numbers, rows = _shared(comm, nbytes)
        self.rows = [torch.from_numpy(memory[:nbytes]).view(dtype) for memory in rows]
        self.row = self.rows[comm.rank]
        self._told, flags = _shared(comm, 8 * 4)
        self._flags = [memory.view(np.int64) for memory in flags]
        self._flags[comm.rank][:] = 0
        self._own = range(length * comm.rank // comm.size, length * (comm.rank + 1) // comm.size)
        comm.Barrier()

    def begin(self, scale: float = 1.0) -> None:
        """This rank's row is filled, and not to be touched before `wait` has returned. What is summed is scaled."""
        self._steps, self._scale = self._steps + 1, scale
        self._flags[self.comm.rank][BAD_RANK] = -1
        self._numbers.Sync()  # the numbers before the flag
        self._flags[self.comm.rank][READY] = self._steps
        self._told.Sync()

    def poll(self) -> bool:
        """Add up this rank's part as soon as all rows are filled; whether all is done."""
        if self._summed < self._steps:
            if not self._all(READY):
                return False
            self._sum()
            self._summed = self._steps
            self._numbers.Sync()
            self._flags[self.comm.rank][DONE] = self._steps
        return self._all(DONE)

    def wait(self) -> None:
        """Go on until all is done."""
        while not self.poll():
            time.sleep(0)  # the other ranks may need this core

    @property
    def bad(self) -> tuple[int, int] | None:
        """Of the last sum, a rank whose row was not finite, and the first such place that was found."""
        found = [(int(f[BAD_RANK]), int(f[BAD_PLACE])) for f in self._flags if f[BAD_RANK] >= 0]
        return min(found, default=None)

    def _all(self, what: int) -> bool:
        self._told.Sync()
        if any(f[what] < self._steps for f in self._flags):
            return False
        self._numbers.Sync()
        return True

    def _sum(self) -> None:
        for begin in range(self._own.start, self._own.stop, BLOCK):
            part = slice(begin, min(begin + BLOCK, self._own.stop))
            total, *others = [row[part] for row in self.rows]  # added up where it lies: the least that can be moved
            if self._scale == 1:
                for block in others:
                    total += block
            else:
                total *= self._scale  # before the sum, which might be too large for a short dtype
                for block in others:
                    total.add_(block, alpha=self._scale)
            if total.is_floating_point() and not math.isfinite(total.sum().item()):
                self._look(total, others, part.start)
            for block in others:
                block.copy_(total)

    def _look(self, total: torch.Tensor, others: list[torch.Tensor], begin: int) -> None:
        """Whose number it was that is not finite: afterwards all have the sum, and nobody can tell.

        What no other rank has brought in was rank 0's; a mean of finite numbers is finite.
        """
        for rank, block in [*enumerate(others, 1), (0, total)]:
            places = (~block.isfinite()).nonzero()
            own = self._flags[self.comm.rank]
            if len(places) and own[BAD_RANK] < 0:
                own[BAD_RANK], own[BAD_PLACE] = rank, begin + int(places[0])


def _shared(comm: Any, nbytes: int) -> tuple[Any, list[np.ndarray]]:
    """A window of nbytes for each rank, and every rank's memory in it, as bytes."""
    from mpi4py import MPI

    window = MPI.Win.Allocate_shared(max(nbytes, 8), 8, comm=comm)
    window.Lock_all()  # what Sync needs: it keeps loads and stores in order
    rows: list[Any] = [np.frombuffer(window.Shared_query(rank)[0], np.uint8) for rank in range(comm.size)]  # type: ignore[call-overload]
    return window, rows
