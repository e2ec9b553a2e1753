"""The requests that a rank has begun and not waited for, and the memory that they use."""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mpcourse.virtual.ranks.request import Request

Piece = tuple[int, int, int]  # the addresses of the first byte and of the one after the last; the request's id


class Open:
    """The open requests of one rank. Which of them uses some memory, and which ends next, is found without a search.

    reads, writes: memory that sends and receives use, by address. longest: bytes of the longest piece that ever was in
    either.
    """

    def __init__(self) -> None:
        self.requests: dict[int, Request] = {}
        self.pieces: dict[int, Piece] = {}
        self.reads: list[Piece] = []
        self.writes: list[Piece] = []
        self.longest = 0
        self.ends: list[tuple[float, int]] = []
        self.over: set[int] = set()  # ids of requests that had ended at the last check

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> "Iterator[Request]":
        return iter(list(self.requests.values()))

    def add(self, q: "Request") -> None:
        self.requests[id(q)] = q
        if q.end is not None:
            self.ending(q)
        if q.array is not None and q.nbytes:
            begin, end = bounds(q.array)
            self.longest = max(self.longest, end - begin)
            piece = self.pieces[id(q)] = (begin, end, id(q))
            insort(self.writes if q.receives else self.reads, piece)

    def remove(self, q: "Request") -> None:
        self.over.discard(id(q))
        if self.requests.pop(id(q), None) is not None and (piece := self.pieces.pop(id(q), None)):
            pieces = self.writes if q.receives else self.reads
            del pieces[bisect_left(pieces, piece)]

    def ending(self, q: "Request") -> None:
        """Record that it is known when `q` will be over."""
        if id(q) in self.requests:
            assert q.end is not None
            heapq.heappush(self.ends, (q.end, id(q)))

    def ended(self, now: float) -> set[int]:
        """Return the ids of requests that have ended by now; a rank's time never goes back."""
        while self.ends and self.ends[0][0] <= now:
            q = self.requests.get(heapq.heappop(self.ends)[1])
            if q is not None and q.end is not None and q.end <= now:
                self.over.add(id(q))
        return self.over

    def next_end(self, now: float) -> float | None:
        """Return when the next request ends, after now."""
        self.ended(now)
        return self.ends[0][0] if self.ends else None

    def using(self, array: np.ndarray, receives: bool) -> "Request | None":
        """Return a request that writes into memory of `array` or, if `array` is received into, that uses it at all."""
        if not array.nbytes:
            return None
        begin, end = bounds(array)
        for pieces in (self.writes, self.reads) if receives else (self.writes,):
            at = bisect_left(pieces, (begin - self.longest, 0, 0))
            while at < len(pieces) and pieces[at][0] < end:
                if pieces[at][1] > begin:
                    return self.requests[pieces[at][2]]
                at += 1
        return None


def bounds(array: np.ndarray) -> tuple[int, int]:
    """Return the addresses of the first byte of a contiguous array, and of the one after its last."""
    begin = array.__array_interface__["data"][0]
    return begin, begin + array.nbytes
