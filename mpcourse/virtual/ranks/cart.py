"""Ranks in a grid: a communicator whose ranks have coordinates, row by row (MPI 4.1, section 8.5)."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from mpcourse.virtual.ranks.comm import VirtualComm
from mpcourse.virtual.ranks.constants import CART, ERR_ARG, ERR_DIMS, ERR_RANK, PROC_NULL
from mpcourse.virtual.ranks.errors import ClusterError


class VirtualCart(VirtualComm):
    """A grid. dims: ranks in each direction. periods: 1 for a ring, else 0, by direction. coords: of this rank."""

    dims: list[int]
    periods: list[int]
    theirs = "Cartcomm"
    is_topo = True
    topology = CART

    @property
    def coords(self) -> list[int]:
        return self.Get_coords(self.rank)

    @property
    def dim(self) -> int:
        return len(self.dims)

    ndim = dim

    @property
    def topo(self) -> tuple[list[int], list[int], list[int]]:
        return list(self.dims), list(self.periods), self.coords

    def Get_dim(self) -> int:
        return self.dim

    def Get_topo(self) -> tuple[list[int], list[int], list[int]]:
        return self.topo

    def Get_topology(self) -> int:
        return CART

    def Get_coords(self, rank: int) -> list[int]:
        """Return the coordinates of a rank."""
        if not 0 <= rank < self.size:
            self._misused(f"Get_coords({rank}), but there are ranks 0 to {self.size - 1}", ERR_RANK)
        coordinates = []
        for length in reversed(self.dims):
            rank, at = divmod(rank, length)
            coordinates.append(at)
        return coordinates[::-1]

    def Get_cart_rank(self, coords: Sequence[int]) -> int:
        """Return the rank at `coords`; in a direction that is a ring, any number is allowed."""
        if len(coords) != self.dim:
            self._misused(f"Get_cart_rank({list(coords)}): the grid has {self.dim} directions", ERR_ARG)
        rank = 0
        for at, length, ring in zip(coords, self.dims, self.periods, strict=True):
            if not ring and not 0 <= at < length:
                self._misused(
                    f"Get_cart_rank({list(coords)}): {at} is off the grid, {length} ranks and no ring", ERR_ARG
                )
            rank = rank * length + at % length
        return rank

    def Shift(self, direction: int, disp: int) -> tuple[int, int]:
        """Return the ranks to receive from and to send to, `disp` steps along a direction; PROC_NULL: off the grid."""
        if not 0 <= direction < self.dim:
            self._misused(f"Shift in direction {direction}, but there are directions 0 to {self.dim - 1}", ERR_ARG)
        return self._beside(direction, -disp), self._beside(direction, disp)

    def Sub(self, remain_dims: Sequence[bool]) -> "VirtualCart":
        """Return the part of the grid that this rank is in, along the directions that remain."""
        if len(remain_dims) != self.dim:
            self._misused(f"Sub needs a truth value for each of {self.dim} directions, not {len(remain_dims)}", ERR_ARG)
        keep = [i for i, remains in enumerate(remain_dims) if remains]
        color = 0
        for i, (at, length) in enumerate(zip(self.coords, self.dims, strict=True)):
            if i not in keep:
                color = color * length + at
        made = self._made("Sub", (color, self.rank))
        return grid(made, [self.dims[i] for i in keep], [self.periods[i] for i in keep])

    def _beside(self, direction: int, disp: int) -> int:
        coords = self.coords
        coords[direction] += disp
        inside = 0 <= coords[direction] < self.dims[direction]
        return self.Get_cart_rank(coords) if inside or self.periods[direction] else PROC_NULL


def grid(comm: Any, dims: Sequence[int], periods: Sequence[int]) -> Any:
    """Give `comm`, which was just made, coordinates; COMM_NULL is returned unchanged."""
    if comm:
        comm.__class__ = VirtualCart
        comm.dims, comm.periods = list(dims), list(periods)
    return comm


VirtualComm._as_grid = staticmethod(grid)


def Compute_dims(nnodes: int, dims: int | Sequence[int]) -> list[int]:
    """Return ranks in each direction, as equal as possible and not increasing; a `dims` other than 0 is kept."""
    given = [0] * dims if isinstance(dims, int) else list(dims)
    fixed = math.prod(d for d in given if d)
    if nnodes < 1 or any(d < 0 for d in given) or nnodes % fixed or (0 not in given and fixed != nnodes):
        raise ClusterError(
            "misuse", f"Compute_dims: {nnodes} ranks cannot fill a grid of {given} (0: to be chosen)", number=ERR_DIMS
        )
    free = min(_factors(nnodes // fixed, given.count(0), nnodes), key=lambda f: (f[0] - f[-1], f), default=())
    left = iter(free)
    return [d or next(left) for d in given]


def _factors(n: int, count: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to write n as a product of `count` factors that do not increase and are at most `most`."""
    if count == 0:
        if n == 1:
            yield ()
        return
    for first in range(1, min(n, most) + 1):
        if n % first == 0 and first**count >= n:
            for rest in _factors(n // first, count - 1, first):
                yield (first, *rest)
