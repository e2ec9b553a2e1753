"""How many bytes each axis of a grid sends, and how many of them leave a node."""

from typing import NamedTuple

import numpy as np

from mpcourse.grid.grid import Grid


class AxisTraffic(NamedTuple):
    """What all ranks together sent along one axis.

    nbytes: all bytes.
    between_nodes: the bytes among them that went from one node to another.
    """

    nbytes: int
    between_nodes: int


def traffic_by_axis(grid: Grid, traffic: np.ndarray) -> dict[str, AxisTraffic]:
    """Return, by axis, what was sent between ranks that differ in that axis alone.

    grid: of all ranks; any of them may call this.
    traffic: bytes from each row's rank to each column's, int64, (ranks, ranks), as in `VirtualRun.traffic`.
    Raises ValueError for a message between ranks that differ in several axes, because its axis is not known.
    """
    nbytes, away = dict.fromkeys(grid.axes, 0), dict.fromkeys(grid.axes, 0)
    for source, target in np.argwhere(traffic):
        axis = grid.axis_of(int(source), int(target))
        if axis is None:
            raise ValueError(f"rank {source} sent to rank {target}, which differs from it in several axes")
        nbytes[axis] += int(traffic[source, target])
        away[axis] += int(traffic[source, target]) * (grid.nodes[source] != grid.nodes[target])
    return {axis: AxisTraffic(nbytes[axis], away[axis]) for axis in grid.axes}
