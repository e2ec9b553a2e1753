# says: sums compared that were added up in two ways
# thinks: A sum of floats is the same in whichever order it is computed.
"""Exercise e03: where to cut."""

from itertools import accumulate


def balance(costs, stages):
    n, prefix = len(costs), [0, *accumulate(costs)]
    best = [[float("inf")] * (n + 1) for _ in range(stages + 1)]
    best[0][0] = 0
    for s in range(1, stages + 1):
        for end in range(s, n + 1):
            best[s][end] = min(max(best[s - 1][a], prefix[end] - prefix[a]) for a in range(s - 1, end))
    limit, sizes, start = best[stages][n], [], 0
    for s in range(stages, 1, -1):
        end, total = start + 1, costs[start]
        while end < n - s + 1 and total + costs[end] <= limit:
            total += costs[end]
            end += 1
        sizes.append(end - start)
        start = end
    return sizes + [n - start]
