"""A mean of gradients that is under way while the next ones are computed."""

from collections.abc import Mapping
from typing import Any

import torch

from mpcourse.collectives.pending import PendingRing
from mpcourse.data_parallel.memory import to_host
from mpcourse.data_parallel.packing import Packing


class PendingRows:
    """Sums of rows of numbers, begun on all ranks, with the same first tag."""

    def __init__(self, comm: Any, rows: list[torch.Tensor], tag: int = 0) -> None:
        # MPI reads the host's memory: what is on a GPU is summed in a copy there.
        self._rows = [(row, row if row.device.type == "cpu" else to_host(row)) for row in rows]
        self._sums = [PendingRing(comm, host, tag + i) for i, (_, host) in enumerate(self._rows)]

    def poll(self) -> bool:
        """Go on; whether all is done."""
        return all([sum_.poll() for sum_ in self._sums])

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
        self._rows.poll()

    def finish(self) -> None:
        """Wait, and give each parameter its mean gradient."""
        self._rows.wait()
        self.over = True
        self._packing.hand_over(self._held, self._missing)
