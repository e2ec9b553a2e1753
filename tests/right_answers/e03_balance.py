"""Unusual right answers to e03_balance. What a cell holds is told in tests/answers.py."""

# %% exact_fractions
# thinks: Computes with Fractions, so that sums of floats are exact.
from fractions import Fraction
from functools import cache


def balance(costs, stages):
    exact = [Fraction(c) for c in costs]

    @cache
    def best(start, k):
        if k == 1:
            return sum(exact[start:]), [len(exact) - start]
        total, options = 0, []
        for end in range(start + 1, len(exact) - k + 2):
            total += exact[end - 1]
            worst, sizes = best(end, k - 1)
            options.append((max(total, worst), [end - start, *sizes]))
        return min(options)

    return best(0, stages)[1]


# %% float_bisection
# thinks: Bisects the limit as a float until no float is left between, and fills from the right.
def balance(costs, stages):
    def fill(limit):
        sizes, total = [0], 0
        for i in range(len(costs) - 1, -1, -1):
            if sizes[-1] and (total + costs[i] > limit or i + 1 == stages - len(sizes)):
                sizes.append(0)
                total = 0
            sizes[-1] += 1
            total += costs[i]
        return sizes[::-1]

    low, high = 0.0, float(sum(costs)) * 2
    while low < (middle := (low + high) / 2) < high:
        if middle >= max(costs) and len(fill(middle)) <= stages:
            high = middle
        else:
            low = middle
    return fill(high)


# %% memory_recursion
# thinks: Recursion with a memory that splits the stages in two halves instead of taking off one.
from functools import cache


def balance(costs, stages):
    @cache
    def best(a, b, k):
        if k == 1:
            return sum(costs[a:b]), (b - a,)
        left, answer = k // 2, None
        for m in range(a + left, b - (k - left) + 1):
            (x, sx), (y, sy) = best(a, m, left), best(m, b, k - left)
            if answer is None or max(x, y) < answer[0]:
                answer = max(x, y), sx + sy
        return answer

    return list(best(0, len(costs), stages)[1])


# %% prefix_dp
# thinks: Dynamic programming over prefix sums and a table of where the last stage starts.
from itertools import accumulate


def balance(costs, stages):
    n, prefix = len(costs), [0, *accumulate(costs)]
    inf = float("inf")
    best = [[inf] * (n + 1) for _ in range(stages + 1)]
    start = [[0] * (n + 1) for _ in range(stages + 1)]
    best[0][0] = 0
    for s in range(1, stages + 1):
        for end in range(s, n + 1):
            for a in range(s - 1, end):
                worst = max(best[s - 1][a], prefix[end] - prefix[a])
                if worst < best[s][end]:
                    best[s][end], start[s][end] = worst, a
    sizes, end = [], n
    for s in range(stages, 0, -1):
        sizes.append(end - start[s][end])
        end = start[s][end]
    return sizes[::-1]


# %% raises_the_limit
# thinks: Starts at the lower bound and raises the limit to the next sum that would have fitted.
def balance(costs, stages):
    limit = max(costs)
    while True:
        sizes, total, nearest = [0], 0, float("inf")
        for i, cost in enumerate(costs):
            forced = len(costs) - i == stages - len(sizes)
            if sizes[-1] and (forced or total + cost > limit):
                if not forced:
                    nearest = min(nearest, total + cost)
                sizes.append(0)
                total = 0
            sizes[-1] += 1
            total += cost
        if len(sizes) == stages:
            return sizes
        limit = nearest


# %% shortest_path
# thinks: A path through a graph of (cut, stages used) that keeps its worst edge smallest, by Dijkstra with a heap.
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


# %% tries_all_limits
# thinks: Tries every possible limit, the sums of consecutive layers, from the smallest up.
def balance(costs, stages):
    n = len(costs)

    def fill(limit):
        sizes, start = [], 0
        for later in range(stages - 1, -1, -1):
            end = start + 1
            while end < n - later and sum(costs[start : end + 1]) <= limit:
                end += 1
            sizes.append(end - start)
            start = end
        return sizes if start == n else None

    limits = {sum(costs[a:b]) for a in range(n) for b in range(a + 1, n + 1)}
    for limit in sorted(x for x in limits if x >= max(costs)):
        sizes = fill(limit)
        if sizes:
            return sizes


# %% numpy_integers
# thinks: numpy has its own integers.
import numpy as np
def balance(costs, stages):
    n = len(costs)
    table = {}
    def best(i, s):
        if (i, s) not in table:
            if s == 1:
                table[i, s] = sum(costs[i:]), [n - i]
            else:
                table[i, s] = min(((max(sum(costs[i:j]), best(j, s - 1)[0]), [j - i] + best(j, s - 1)[1]) for j in range(i + 1, n - s + 2)), key=lambda t: t[0])
        return table[i, s]
    return list(np.array(best(0, stages)[1]))


# %% numpy_array
# thinks: A tuple of what np.diff gives.
import numpy as np
def balance(costs, stages):
    n = len(costs)
    table = {}
    def best(i, s):
        if (i, s) not in table:
            if s == 1:
                table[i, s] = sum(costs[i:]), [n - i]
            else:
                table[i, s] = min(((max(sum(costs[i:j]), best(j, s - 1)[0]), [j - i] + best(j, s - 1)[1]) for j in range(i + 1, n - s + 2)), key=lambda t: t[0])
        return table[i, s]
    return tuple(np.diff([0, *np.cumsum(best(0, stages)[1])]))
