# says: Some layers are in no stage
# thinks: With no stage left nothing is to be done, so the recursion ends at 0 stages with 0.
"""Exercise e03: where to cut."""

from functools import lru_cache


def balance(costs, stages):
    @lru_cache(None)
    def best(start, k):
        if k == 0:
            return 0, []
        options = []
        for end in range(start + 1, len(costs) - k + 2):
            worst, sizes = best(end, k - 1)
            options.append((max(sum(costs[start:end]), worst), [end - start] + sizes))
        return min(options)

    return best(0, stages)[1]
