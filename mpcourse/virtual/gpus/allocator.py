"""A model of CUDA's caching allocator: what torch requests from the driver, in addition to what tensors use.

The rules are those of c10/cuda/CUDACachingAllocator.cpp at its default settings, for one stream. Sizes are rounded up
to 512 bytes. Requests up to 1 MiB are cut from segments of 2 MiB, and requests below 10 MiB from segments of 20 MiB.
Larger ones get segments of their own, rounded up to 2 MiB. The smallest free block that is large enough is taken, and
split where enough remains. Freed neighbours merge. Where the device is full, segments without a tensor are returned
first.
"""

import bisect
import itertools

KiB, MiB = 2**10, 2**20
ROUND = 512
SMALL = MiB  # the largest request that is cut from a small segment
SMALL_SEGMENT, LARGE_SEGMENT, LARGE_ROUND = 2 * MiB, 20 * MiB, 2 * MiB
MIN_LARGE = 10 * MiB  # requests from here on get a segment of their own


class Chunk:
    """Part of a segment: free or used; `before` and `after` are its neighbours in the segment."""

    __slots__ = ("after", "before", "free", "number", "size", "small")

    def __init__(self, size: int, small: bool, number: int) -> None:
        self.size, self.small, self.number, self.free = size, small, number, True
        self.before: Chunk | None = None
        self.after: Chunk | None = None


class CachingAllocator:
    """Bytes `allocated` (rounded, as torch.cuda.memory_allocated counts) and `reserved` (segments) of one device."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.allocated = self.reserved = self.max_allocated = self.max_reserved = 0
        self._free: dict[bool, list[tuple[int, int, Chunk]]] = {True: [], False: []}  # by small; sorted by size
        self._number = itertools.count()

    def allocate(self, nbytes: int) -> Chunk | None:
        """Return a chunk of at least `nbytes`, or None where the device is full."""
        size = max(ROUND, -(-nbytes // ROUND) * ROUND)
        small = size <= SMALL
        free = self._free[small]
        i = bisect.bisect_left(free, (size, -1))
        if i < len(free):
            chunk = free.pop(i)[2]
        else:
            segment = self._segment_size(size)
            if self.reserved + segment > self.capacity:
                self.empty_cache()
                if self.reserved + segment > self.capacity:
                    return None
            self.reserved += segment
            self.max_reserved = max(self.max_reserved, self.reserved)
            chunk = Chunk(segment, small, next(self._number))
        rest = chunk.size - size
        if rest >= ROUND if small else rest > SMALL:
            self._split(chunk, size)
        chunk.free = False
        self.allocated += chunk.size
        self.max_allocated = max(self.max_allocated, self.allocated)
        return chunk

    def release(self, chunk: Chunk) -> None:
        """Return a chunk to the cache; it merges with free neighbours."""
        self.allocated -= chunk.size
        for other in (chunk.before, chunk.after):
            if other is not None and other.free:
                self._take_out(other)
                chunk.size += other.size
                if other is chunk.before:
                    chunk.before = other.before
                else:
                    chunk.after = other.after
        if chunk.before is not None:
            chunk.before.after = chunk
        if chunk.after is not None:
            chunk.after.before = chunk
        chunk.free = True
        bisect.insort(self._free[chunk.small], (chunk.size, chunk.number, chunk))

    def empty_cache(self) -> None:
        """Return segments without a tensor to the driver."""
        for small, free in self._free.items():
            whole = [c for _, _, c in free if c.before is None and c.after is None]
            self.reserved -= sum(c.size for c in whole)
            self._free[small] = [entry for entry in free if entry[2].before or entry[2].after]

    def _split(self, chunk: Chunk, size: int) -> None:
        rest = Chunk(chunk.size - size, chunk.small, next(self._number))
        rest.before, rest.after = chunk, chunk.after
        if chunk.after is not None:
            chunk.after.before = rest
        chunk.after, chunk.size = rest, size
        bisect.insort(self._free[chunk.small], (rest.size, rest.number, rest))

    def _take_out(self, chunk: Chunk) -> None:
        free = self._free[chunk.small]
        del free[bisect.bisect_left(free, (chunk.size, chunk.number))]

    @staticmethod
    def _segment_size(size: int) -> int:
        if size <= SMALL:
            return SMALL_SEGMENT
        return LARGE_SEGMENT if size < MIN_LARGE else -(-size // LARGE_ROUND) * LARGE_ROUND
