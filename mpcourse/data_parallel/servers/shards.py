"""Which server holds which part of a model."""

from collections.abc import Sequence

import torch

from mpcourse.collectives.buffers import offsets
from mpcourse.data_parallel.flat_buffers import FlatBuffers

HOW = ("even", "round_robin")


class Shards:
    """All of a model's trained parameters in one flat buffer, cut into a shard for each server.

    parameters: of one dtype, on the CPU.
    servers: shards, 1 or more.
    how: "even": shards of equal length, which may cut a parameter; "round_robin": whole parameters, given to the
    servers in turn as TensorFlow's replica_device_setter did.
    flat: each parameter's place in the buffer.
    order: of the parameters in the buffer, as numbers in `parameters`.
    offsets: shard i is buffer[offsets[i] : offsets[i + 1]].
    Raises ValueError for no parameters, several dtypes, other devices or an unknown `how`.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], servers: int, how: str = "even") -> None:
        if how not in HOW:
            raise ValueError(f"shards are {' or '.join(HOW)}, not {how!r}")
        kinds = sorted({f"{str(p.dtype).removeprefix('torch.')} on {p.device}" for p in parameters})
        if len(kinds) != 1 or not kinds[0].endswith("on cpu"):
            raise ValueError(f"servers hold parameters of one dtype, on the CPU, and these are {kinds or 'none'}")
        self.order = list(range(len(parameters)))
        if how == "round_robin":
            self.order.sort(key=lambda i: i % servers)  # this sort keeps the order of equals
        self.flat = FlatBuffers([parameters[i] for i in self.order])
        (self.buffer,) = self.flat.buffers
        if how == "even":
            self.offsets = offsets(len(self.buffer), servers)
        else:
            lengths = [sum(p.numel() for p in parameters[s::servers]) for s in range(servers)]
            self.offsets = [sum(lengths[:s]) for s in range(servers + 1)]

    def piece(self, server: int, buffer: torch.Tensor | None = None) -> torch.Tensor:
        """Return a server's part of a buffer, on the same memory.

        server: its number, from 0.
        buffer: flat, as long as all shards together; None: the buffer that holds the parameters' places.
        """
        return (self.buffer if buffer is None else buffer)[self.offsets[server] : self.offsets[server + 1]]

    @property
    def lengths(self) -> list[int]:
        """Elements that each server holds."""
        return [b - a for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]
