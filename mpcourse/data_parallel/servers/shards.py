"""Which server holds which part of a model."""

from collections.abc import Sequence

import torch

from mpcourse.collectives.buffers import offsets
from mpcourse.data_parallel.packing import Packing

HOW = ("even", "round_robin")


class Shards:
    """All of a model's trained numbers in one row, cut into a piece for each server.

    parameters: of one dtype, on the CPU. how: "even", pieces of equal length, wherever that cuts; "round_robin", whole
    parameters, dealt to the servers in turn as TensorFlow's replica_device_setter did. packing: each parameter's
    place in the row. order: of the parameters in it. edges: piece i is row[edges[i] : edges[i + 1]].
    Raises ValueError for no parameters, several dtypes, other devices and an unknown `how`.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], servers: int, how: str = "even") -> None:
        if how not in HOW:
            raise ValueError(f"shards are {' or '.join(HOW)}, not {how!r}")
        kinds = sorted({f"{str(p.dtype).removeprefix('torch.')} on {p.device}" for p in parameters})
        if len(kinds) != 1 or not kinds[0].endswith("on cpu"):
            raise ValueError(f"servers hold parameters of one dtype, on the CPU, and these are {kinds or 'none'}")
        self.order = list(range(len(parameters)))
        if how == "round_robin":
            self.order.sort(key=lambda i: i % servers)  # a sort that keeps the order of equals
        self.packing = Packing([parameters[i] for i in self.order])
        (self.row,) = self.packing.rows
        if how == "even":
            self.edges = offsets(len(self.row), servers)
        else:
            lengths = [sum(p.numel() for p in parameters[s::servers]) for s in range(servers)]
            self.edges = [sum(lengths[:s]) for s in range(servers + 1)]

    def piece(self, server: int, row: torch.Tensor | None = None) -> torch.Tensor:
        """A server's part of the row, or of another row of that length; on the same memory."""
        return (self.row if row is None else row)[self.edges[server] : self.edges[server + 1]]

    @property
    def lengths(self) -> list[int]:
        """Numbers each server holds."""
        return [b - a for a, b in zip(self.edges[:-1], self.edges[1:], strict=True)]
