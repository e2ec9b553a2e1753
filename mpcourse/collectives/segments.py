"""A long message in pieces: what has arrived is added while it is in the cache.

A whole chunk of megabytes lands in memory, and is fetched from there again to be added. A piece lands in a buffer that
the core's cache holds, and is added at once: a third of the way to memory is saved. Too short pieces cost more
messages than they save: half a megabyte is best on machines with 1 or 2 MB of cache a core.
"""

from typing import Any

import numpy as np

from mpcourse.collectives.numbers import Array, Op, add, cut, edges, empty_like, wire

SEGMENT = 1 << 19  # bytes


class Segments:
    """Where pieces of x's dtype land. longest: numbers of the longest message. segment: bytes of a piece; None: all.

    All ranks that exchange something must name the same numbers: so both sides cut it into equally many pieces.
    """

    def __init__(self, x: Array, longest: int, segment: int | None) -> None:
        if segment is not None and segment < x.itemsize:
            raise ValueError(f"a segment of {segment} bytes holds no number of {x.itemsize}")
        self.pieces = 1 if segment is None else max(1, -(-longest // (segment // x.itemsize)))
        self.landing: Any = empty_like(x, -(-longest // self.pieces))
        self.arrived = wire(self.landing)

    def swap_and_add(
        self, comm: Any, sent: np.ndarray, target: int, numbers: Array, source: int, op: Op | None
    ) -> None:
        """Send `sent` to rank target; receive as many numbers as `numbers` has from rank source, and add them to it."""
        landing, arrived = self.landing, self.arrived
        if self.pieces == 1:
            comm.Sendrecv(sent, target, 0, arrived[: len(numbers)], source, 0)
            add(numbers, landing[: len(numbers)], op)
            return
        gone, into = cut(sent, edges(len(sent), self.pieces)), cut(numbers, edges(len(numbers), self.pieces))
        for mine, theirs in zip(gone, into, strict=True):
            comm.Sendrecv(mine, target, 0, arrived[: len(theirs)], source, 0)
            add(theirs, landing[: len(theirs)], op)
