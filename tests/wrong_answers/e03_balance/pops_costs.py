# says: costs.pop(0)
# thinks: The list of costs is used up layer by layer.
"""Exercise e03: where to cut."""

from functools import lru_cache


def balance(costs, stages):
    given = tuple(costs)

    @lru_cache(None)
    def best(start, k):
        if k == 1:
            return sum(given[start:])
        return min(max(sum(given[start:end]), best(end, k - 1)) for end in range(start + 1, len(given) - k + 2))

    limit, sizes = best(0, stages), []
    for stage in range(stages, 0, -1):
        size, total = 1, costs.pop(0)
        while len(costs) > stage - 1 and (stage == 1 or total + costs[0] <= limit):
            total += costs.pop(0)
            size += 1
        sizes.append(size)
    return sizes
