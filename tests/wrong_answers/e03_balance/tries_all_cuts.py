# says: 15 million ways
# thinks: All cuts can be tried with itertools.combinations.
"""Exercise e03: where to cut."""

from itertools import combinations


def balance(costs, stages):
    n = len(costs)
    best, answer = float("inf"), None
    for cuts in combinations(range(1, n), stages - 1):
        ends = [0, *cuts, n]
        worst = max(sum(costs[a:b]) for a, b in zip(ends, ends[1:]))
        if worst < best:
            best, answer = worst, [b - a for a, b in zip(ends, ends[1:])]
    return answer
