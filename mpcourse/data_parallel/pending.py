"""A mean of gradients that is under way while the next ones are computed."""

from collections.abc import Mapping
from typing import Any

import torch

from mpcourse.collectives.fast.nonblocking import NonblockingRing
from mpcourse.data_parallel.memory import reads, to_host
from mpcourse.data_parallel.packing import Packing
from mpcourse.virtual import mpi_of

_under_way: set["PendingByMpi"] = set()  # MPI writes into their rows, even if nobody waits for them any more


class PendingByMpi:
    """The sum of a row on a GPU, which MPI reads, and adds up by an algorithm of its own."""

    def __init__(self, comm: Any, row: torch.Tensor) -> None:
        self._request = comm.Iallreduce(mpi_of(comm).IN_PLACE, row)
        _under_way.add(self)

    def test(self) -> bool:
        if done := self._request.Test():
            _under_way.discard(self)
        return done

    def wait(self) -> None:
        self._request.Wait()
        _under_way.discard(self)


class PendingRows:
    """Sums of rows of numbers, begun on all ranks, in the same order and with the same first tag."""

    def __init__(self, comm: Any, rows: list[torch.Tensor], tag: int = 0) -> None:
        self._rows: list[tuple[torch.Tensor, torch.Tensor]] = []  # and where each is summed
        self._sums: list[NonblockingRing | PendingByMpi] = []
        for i, row in enumerate(rows):
            if reads(comm, row):
                self._rows.append((row, row))
                self._sums.append(PendingByMpi(comm, row))
            else:
                host = row if row.device.type == "cpu" else to_host(row)
                self._rows.append((row, host))
                self._sums.append(NonblockingRing(comm, host, tag + i))

    def test(self) -> bool:
        """Go on; whether all is done."""
        return all([sum_.test() for sum_ in self._sums])

    def wait(self) -> None:
        for sum_, (row, host) in zip(self._sums, self._rows, strict=True):
            sum_.wait()
            if row is not host:
                row.copy_(host)


class PendingMean:
    """The mean of some parameters' gradients, which lie scaled in `packing`. missing: whose gradient no rank has."""

    def __init__(
        self, comm: Any, held: Mapping[str, torch.Tensor], missing: set[str], packing: Packing, tag: int
    ) -> None:
        self._held, self._missing, self._packing = held, missing, packing
        self._rows, self.over = PendingRows(comm, packing.rows, tag), False

    def poll(self) -> None:
        """Let the sums go on."""
        self._rows.test()

    def finish(self) -> None:
        """Wait, and give each parameter its mean gradient."""
        self._rows.wait()
        self.over = True
        self._packing.hand_over(self._held, self._missing)
