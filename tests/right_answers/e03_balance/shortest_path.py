# right: A path through a graph of (cut, stages used) that keeps its worst edge smallest, by Dijkstra with a heap.
"""Exercise e03: where to cut."""

import heapq


def balance(costs, stages):
    n = len(costs)
    heap, done = [(0, 0, 0, ())], set()
    while heap:
        worst, at, used, sizes = heapq.heappop(heap)
        if (at, used) in done:
            continue
        done.add((at, used))
        if at == n and used == stages:
            return list(sizes)
        total = 0
        for end in range(at + 1, n + 1):
            total += costs[end - 1]
            if used < stages and n - end >= stages - used - 1:
                heapq.heappush(heap, (max(worst, total), end, used + 1, (*sizes, end - at)))
