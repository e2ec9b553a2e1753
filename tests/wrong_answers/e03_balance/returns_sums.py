# says: what the stages cost
# thinks: The result of balancing is what each stage costs.
"""Exercise e03: where to cut."""

from functools import lru_cache


def balance(costs, stages):
    @lru_cache(None)
    def best(start, k):
        if k == 1:
            return (sum(costs[start:]),)
        options = [
            (sum(costs[start:end]),) + best(end, k - 1) for end in range(start + 1, len(costs) - k + 2)
        ]
        return min(options, key=max)

    return list(best(0, stages))
