"""All-reduce in memory that all ranks of one machine share, without messages (MPI-3; Hoefler et al. 2013).

A message between ranks of one machine is copied at least once before it is added up, and its sum is copied back. Here
each rank adds up its part of all ranks' buffers in place, and writes the sum into all of them.
"""

import cmath
import itertools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch

from mpcourse.common.comm import Comm

if TYPE_CHECKING:
    from mpi4py import MPI

BLOCK = 1 << 19  # elements that are added up at once: few enough to fit into a cache, enough to need few calls
LINE = 64  # bytes of a cache line
# Flags that each rank writes for the others: how many steps it was ready for, how many it has done, whether its buffer
# is not yet scaled; and, for two steps in turns, a rank whose buffer is not finite, and the place in it.
READY, DONE, UNSCALED, BAD = 0, 1, 2, 3


class Piece(NamedTuple):
    """A run of elements of one tensor, and its place in this rank's buffer.

    which: number of the tensor.
    begin, end: its elements from `begin` to `end`.
    place: their part of the buffer, a flat tensor.
    """

    which: int
    begin: int
    end: int
    place: torch.Tensor


class SharedBuffer:
    """A flat buffer of each rank in memory that all ranks share, and its all-reduce. All ranks make one together.

    comm: mpi4py's communicator, of two or more ranks of one machine.
    lengths: elements of the tensors that lie side by side in the buffer.
    dtype: of all tensors, floating point.
    buffer: this rank's own, a CPU tensor of one dimension.

    `start` takes the tensors; `test` and `wait` proceed with the all-reduce. Afterwards all buffers hold the sum, in
    the same bits. Only `wait` waits.
    """

    def __init__(self, comm: Comm, lengths: Sequence[int], dtype: torch.dtype) -> None:
        self.comm, self._steps, self._summed = comm, 0, 0
        self._values: list[torch.Tensor] = []
        rank, p, length = comm.rank, comm.size, sum(lengths)
        nbytes = length * dtype.itemsize
        self._window, memories = shared_window(comm, nbytes)
        buffers = [torch.from_numpy(np.frombuffer(memory, np.uint8)[:nbytes]).view(dtype) for memory in memories]
        self.buffer, others = buffers[rank], buffers[:rank] + buffers[rank + 1 :]
        self._flags_window, flags = shared_window(comm, 8 * (BAD + 2 * 2))
        self._flags = [memory.cast("q") for memory in flags]  # numpy's scalars take ten times as long to read
        for flag in READY, DONE:
            self._flags[rank][flag] = 0
        first, end = length * rank // p, length * (rank + 1) // p  # the part that this rank adds up
        begins = itertools.accumulate(lengths, initial=0)
        self._places = [self.buffer[begin:].data_ptr() for begin, _ in zip(begins, lengths, strict=False)]
        self._sent = self._pieces(lengths, 0, first) + self._pieces(lengths, end, length)
        self._blocks = []
        for begin in range(first, end, BLOCK):
            part = slice(begin, min(begin + BLOCK, end))
            pieces = self._pieces(lengths, part.start, part.stop)
            theirs = others[0][part].split([len(piece.place) for piece in pieces])
            self._blocks.append((list(zip(pieces, theirs, strict=True)), part, [row[part] for row in others]))
        comm.Barrier()

    def start(self, tensors: Sequence[torch.Tensor], scale: float = 1.0) -> None:
        """Begin to sum this rank's tensors over all ranks. Every rank calls it, and waits for none.

        tensors: of any shapes, with as many elements as `lengths` says. Do not touch them before `wait` has returned.
        They may lie at their places in `buffer`.
        scale: each element is multiplied by it.

        Elements that other ranks add up are copied into the buffer; the rest are read where they are.
        """
        self._values, self._scale = [tensor.reshape(-1) for tensor in tensors], scale
        away = [value.data_ptr() != place for value, place in zip(self._values, self._places, strict=True)]
        sent = [piece for piece in self._sent if away[piece.which]]
        unscaled = len(sent) < len(self._sent)  # what is not copied is not scaled: the rank that adds it up scales it
        for piece in sent:
            value = self._values[piece.which][piece.begin : piece.end]
            torch.mul(value, 1 if unscaled else scale, out=piece.place)
        self._flags[self.comm.rank][UNSCALED] = unscaled
        self._steps += 1
        self._flags[self.comm.rank][self._bad_at] = -1
        self._window.Sync()  # writes the elements before the flag
        self._flags[self.comm.rank][READY] = self._steps
        self._flags_window.Sync()

    def test(self) -> bool:
        """Add up this rank's part as soon as all buffers are filled; return whether all is done."""
        if self._summed < self._steps:
            if not self._all(READY):
                return False
            self._sum()
            self._summed, self._values = self._steps, []
            self._window.Sync()
            self._flags[self.comm.rank][DONE] = self._steps
        return self._all(DONE)

    def wait(self) -> None:
        """Proceed until all is done."""
        while not self.test():
            os.sched_yield()  # the other ranks may need this core

    @property
    def bad(self) -> tuple[int, int] | None:
        """After a sum: a rank whose buffer was not finite, and the first such place, else None."""
        at = self._bad_at
        return min([(f[at], f[at + 1]) for f in self._flags if f[at] >= 0], default=None)

    @property
    def _bad_at(self) -> int:
        """Index of this step's flag. A rank one step ahead writes another one, and no rank can be two steps ahead."""
        return BAD + 2 * (self._steps % 2)

    def _pieces(self, lengths: Sequence[int], begin: int, end: int) -> list[Piece]:
        """Return the pieces between two places of the buffer."""
        pieces, at = [], 0
        for index, length in enumerate(lengths):
            first, last = max(begin, at), min(end, at + length)
            if first < last:
                pieces.append(Piece(index, first - at, last - at, self.buffer[first:last]))
            at += length
        return pieces

    def _all(self, what: int) -> bool:
        self._flags_window.Sync()
        if any([f[what] < self._steps for f in self._flags]):
            return False
        self._window.Sync()
        return True

    def _sum(self) -> None:
        """Sum with as few moves as possible: read each element where it is, and write it into all buffers."""
        flags = self._flags[: self.comm.rank] + self._flags[self.comm.rank + 1 :]
        scales = [self._scale if f[UNSCALED] else 1 for f in flags]
        for pieces, part, others in self._blocks:
            total = self.buffer[part]
            for piece, theirs in pieces:
                own = self._values[piece.which][piece.begin : piece.end]
                if scales[0] == 1:
                    torch.add(theirs, own, alpha=self._scale, out=piece.place)
                else:  # in two passes, because a sum that is scaled afterwards could overflow
                    torch.mul(own, self._scale, out=piece.place)
                    piece.place.add_(theirs, alpha=scales[0])
            for block, scale in zip(others[1:], scales[1:], strict=True):
                total.add_(block, alpha=scale)
            if not cmath.isfinite(total.sum().item()):
                self._look(total, others, part.start)
            for block in others:
                block.copy_(total)

    def _look(self, total: torch.Tensor, others: list[torch.Tensor], begin: int) -> None:
        """Find the rank whose element is not finite: afterwards all buffers hold the sum, and it could not be found.

        What no other rank has contributed is this rank's.
        """
        ranks = [rank for rank in range(self.comm.size) if rank != self.comm.rank]
        for rank, block in [*zip(ranks, others, strict=True), (self.comm.rank, total)]:
            places = (~block.isfinite()).nonzero()
            own, at = self._flags[self.comm.rank], self._bad_at
            if len(places) and own[at] < 0:
                own[at], own[at + 1] = rank, begin + int(places[0])


def on_one_machine(comm: Comm) -> bool:
    """Return whether all ranks are on one machine.

    comm: mpi4py's communicator, not a virtual rank's; all its ranks call this.
    """
    from mpi4py import MPI

    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        return here.size == comm.size
    finally:
        here.Free()


def shared_window(comm: Comm, nbytes: int) -> tuple["MPI.Win", list[memoryview]]:
    """Return memory that all ranks of one machine share.

    comm: mpi4py's communicator, whose ranks are on one machine and all call this.
    nbytes: size of each rank's part.
    Returns MPI's window, which holds the memory, and each rank's part of it, by rank.
    """
    from mpi4py import MPI

    whole = max(LINE, nbytes + -nbytes % LINE)  # the next rank's part begins where this rank's ends
    window = MPI.Win.Allocate_shared(whole, 8, comm=cast(MPI.Intracomm, comm))
    window.Lock_all()  # Sync needs it; Sync keeps loads and stores in order
    return window, [memoryview(window.Shared_query(rank)[0]) for rank in range(comm.size)]  # type: ignore[arg-type]
