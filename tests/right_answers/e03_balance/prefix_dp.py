# right: Dynamic programming over prefix sums and a table of where the last stage starts.
"""Exercise e03: where to cut."""

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
