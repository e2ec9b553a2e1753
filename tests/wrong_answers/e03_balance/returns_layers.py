# says: not which, nor what they cost
# thinks: The stages themselves are the result, as lists of costs.
"""Exercise e03: where to cut."""

from functools import lru_cache


def balance(costs, stages):
    @lru_cache(None)
    def best(start, k):
        if k == 1:
            return (tuple(costs[start:]),)
        options = [(tuple(costs[start:end]),) + best(end, k - 1) for end in range(start + 1, len(costs) - k + 2)]
        return min(options, key=lambda parts: max(map(sum, parts)))

    return [list(part) for part in best(0, stages)]
