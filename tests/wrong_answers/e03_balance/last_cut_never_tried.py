# says: the first and the last too
# thinks: range(start + 1, len(costs) - k + 1) leaves k - 1 layers to the others.
"""Exercise e03: where to cut."""

from functools import lru_cache


def balance(costs, stages):
    @lru_cache(None)
    def best(start, k):
        if k == 1:
            return sum(costs[start:]), [len(costs) - start]
        options = []
        for end in range(start + 1, max(start + 2, len(costs) - k + 1)):
            worst, sizes = best(end, k - 1)
            options.append((max(sum(costs[start:end]), worst), [end - start] + sizes))
        return min(options)

    return best(0, stages)[1]
