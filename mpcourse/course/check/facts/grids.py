"""Grids: small ones, who is where on them, and a rank's communicators along the axes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

AXES = ("data", "pipeline", "tensor")
ORDER = ("pipeline", "data", "tensor")  # from the slowest to the fastest


class GridSizes(NamedTuple):
    """How many ranks each axis has. Tensor is the fastest axis, pipeline the slowest."""

    data: int
    pipeline: int
    tensor: int

    @property
    def ranks(self) -> int:
        return self.data * self.pipeline * self.tensor

    def coordinates(self, rank: int) -> "Coordinates":
        rest, tensor = divmod(rank, self.tensor)
        pipeline, data = divmod(rest, self.data)
        return Coordinates(data, pipeline, tensor)

    def __str__(self) -> str:
        return f"data {self.data} x pipeline {self.pipeline} x tensor {self.tensor}"


class Coordinates(NamedTuple):
    """The place of a rank on a grid."""

    data: int
    pipeline: int
    tensor: int

    def __str__(self) -> str:
        return f"data {self.data}, pipeline {self.pipeline}, tensor {self.tensor}"


def members(sizes: GridSizes, rank: int, axis: str, order: Sequence[str] = ORDER) -> list[int]:
    """List `rank` and the ranks that differ from it in one axis alone, by their coordinate.

    order: the axes, from the slowest to the fastest.
    """
    ranks = np.arange(sizes.ranks).reshape([getattr(sizes, name) for name in order])
    place: list[Any] = [*np.argwhere(ranks == rank)[0]]
    place[order.index(axis)] = slice(None)
    return ranks[tuple(place)].tolist()


def communicators(comm: Any, sizes: GridSizes) -> tuple[Any, Any, Any]:
    """Make this rank's communicators along data, pipeline and tensor. All ranks of `comm` call it."""
    own = sizes.coordinates(comm.rank)
    made = [comm.Split(members(sizes, comm.rank, axis)[0], getattr(own, axis)) for axis in AXES]
    return made[0], made[1], made[2]


def grids_of(ranks: int) -> Sequence[GridSizes]:
    """List the grids that real ranks are asked for: first the grids with more than one axis."""
    return {
        1: [GridSizes(1, 1, 1)],
        2: [GridSizes(1, 1, 2), GridSizes(1, 2, 1), GridSizes(2, 1, 1)],
        3: [GridSizes(1, 1, 3), GridSizes(3, 1, 1)],
        4: [GridSizes(1, 2, 2), GridSizes(2, 1, 2), GridSizes(2, 2, 1)],
    }.get(ranks, [GridSizes(1, 1, ranks)])
