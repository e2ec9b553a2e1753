# says: the least spread around the average
# thinks: Balanced means that the difference of the largest and the smallest stage is least.
"""Exercise e03: where to cut."""

from functools import lru_cache


def balance(costs, stages):
    mean = sum(costs) / stages

    @lru_cache(None)
    def best(start, k):
        if k == 1:
            return (sum(costs[start:]) - mean) ** 2, [len(costs) - start]
        options = []
        for end in range(start + 1, len(costs) - k + 2):
            spread, sizes = best(end, k - 1)
            options.append(((sum(costs[start:end]) - mean) ** 2 + spread, [end - start] + sizes))
        return min(options)

    return best(0, stages)[1]
