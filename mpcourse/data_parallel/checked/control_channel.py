"""Ranks announce what they are about to do before a collective call, so that differences are named.

An all-reduce waits for all ranks. Where one has ended, or does something else, the others would wait without end and
say nothing. A control channel first gathers a few bytes of each rank, which takes microseconds, and compares them.
"""

import os
import struct
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from mpcourse.collectives.fast.shared_buffer import on_one_machine
from mpcourse.collectives.fast.shared_flags import SharedFlags
from mpcourse.common.comm import Comm
from mpcourse.data_parallel.communicator import nothing
from mpcourse.virtual import MPI, RankFailed, mpi_of

PATIENCE = 0.2  # seconds, after which a rank checks whether another one has ended
MESSAGE = struct.Struct("32s4q")  # a rank's row: what it is doing, and numbers
MOST = 4  # numbers in a row


class ControlChannel:
    """A channel that compares what ranks are about to do. All ranks make one together, and call it in the same order.

    comm: mpi4py's communicator, or a virtual rank's.

    Real ranks on one machine write into memory that they share; others send messages. A real rank that ends, or whose
    channel is freed, reports it to the others.
    """

    def __init__(self, comm: Comm) -> None:
        self.comm, self._calls = comm.Dup(), [0]
        self._farewell = comm.Dup()  # for the messages of ranks that end
        self._virtual = mpi_of(comm) is MPI
        self._flags: SharedFlags | None = None
        self._ended: list[tuple[int, int]] = []  # ranks, and the number of their calls
        if not self._virtual:
            if on_one_machine(self.comm):
                self._flags = SharedFlags(self.comm, MESSAGE.size)
            weakref.finalize(self, _leave, self._farewell, self._calls)  # runs at exit at the latest

    def exchange(self, doing: str, *numbers: int, meanwhile: Callable[[], object] = nothing) -> list[tuple[int, ...]]:
        """Return the numbers that each rank gave: a tuple for each rank, in the order of ranks. All ranks call it.

        doing: what this rank is about to do, for error messages, at most 32 bytes.
        numbers: equally many on all ranks, at most 4.
        meanwhile: called repeatedly while this rank waits for the others; not on virtual ranks.
        Raises RankFailed, on every rank, where ranks are about to do different things, or where one has ended.
        """
        self._calls[0] += 1
        own = MESSAGE.pack(doing.encode(), *numbers, *[0] * (MOST - len(numbers)))
        if (flags := self._flags) is not None:
            flags.write(own)
            self._wait(lambda: flags.complete, doing, meanwhile)
            rows = flags.read()
        else:
            rows = self._gather(own, doing, meanwhile)
        messages = [MESSAGE.unpack(row) for row in rows]
        names = [row[0].rstrip(b"\0").decode() for row in messages]
        if len(set(names)) > 1:
            calls = ", ".join(f"rank {r} {name}" for r, name in enumerate(names))
            raise RankFailed(f"ranks do different things: {calls}. All must call the same, in the same order")
        return [row[1 : 1 + len(numbers)] for row in messages]

    def wait(self, request: Any, doing: str, status: Any = None) -> None:
        """Wait for a message, but not for a rank that has ended. Any rank may call it.

        request: mpi4py's, of any communicator with these ranks.
        doing: what this rank does, for error messages, at most 32 bytes.
        status: MPI's, which is filled in, or None.
        Raises RankFailed where a rank has ended.
        """
        if self._virtual:
            request.Wait(status)
        else:
            self._wait(lambda: request.Test(status), doing)

    def _gather(self, own: bytes, doing: str, meanwhile: Callable[[], object]) -> list[bytes]:
        """Gather rows from all ranks in ceil(lg p) rounds (Bruck et al. 1997).

        It uses single messages, because a receive that never ends can be cancelled, and a collective call cannot.
        """
        comm, p = self.comm, self.comm.size
        rows, known = np.empty((p, MESSAGE.size), np.uint8), 1  # of this rank, the next one, ...
        rows[0] = np.frombuffer(own, np.uint8)
        if self._virtual:  # virtual ranks report by themselves a rank that does not come
            every = np.empty_like(rows)
            comm.Allgather(rows[0], every)
            return [row.tobytes() for row in every]
        while known < p:
            count = min(known, p - known)
            receiving = comm.Irecv(rows[known : known + count], (comm.rank + known) % p)
            sending = comm.Isend(rows[:count], (comm.rank - known) % p)
            try:
                self._wait(receiving.Test, doing, meanwhile)
            except RankFailed:
                receiving.Cancel()
                receiving.Free()
                raise
            sending.Wait()
            known += count
        return [row.tobytes() for row in np.roll(rows, comm.rank, 0)]

    def _wait(self, done: Callable[[], bool], doing: str, meanwhile: Callable[[], object] = nothing) -> None:
        begun, asked = 0.0, 0
        while not done():
            meanwhile()
            asked += 1
            if asked % 64:
                continue
            now = time.perf_counter()
            begun = begun or now
            try:
                self._listen(doing if now - begun > PATIENCE else None)
            except RankFailed:
                if done():  # it had sent everything before it ended
                    return
                raise
            if now - begun > PATIENCE:
                time.sleep(0.001)
            else:
                os.sched_yield()  # others may need this core; time.sleep(0) would take it from this rank for 75 us

    def _listen(self, doing: str | None) -> None:
        """Let MPI proceed, which it does only when it is called. Raise RankFailed if a rank has ended.

        doing: what this rank waits to do. None: raise nothing, because a rank that ended may have sent what is awaited.
        """
        status = mpi_of(self.comm).Status()
        if self._farewell.Iprobe(status=status):
            count = np.zeros(1, np.int64)
            self._farewell.Recv(count, status.source)
            self._ended.append((status.source, int(count[0])))
        if self._ended and doing is not None:
            rank, calls = self._ended[0]
            raise RankFailed(
                f"rank {self.comm.rank} {doing} (its call {self._calls[0]}), and rank {rank} has ended after "
                f"{calls} calls: it raised an error, or makes fewer calls than this rank, e.g. takes fewer steps"
            )


def _leave(farewell: Any, calls: list[int]) -> None:
    """Report to the other ranks that this rank has ended, and after how many calls."""
    count = np.array(calls)
    for rank in range(farewell.size):
        if rank != farewell.rank:
            farewell.Isend(count, rank).Free()  # so short a message is sent at once, and may never be received
