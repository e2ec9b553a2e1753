# says: Are the costs sorted
# thinks: Sorting a copy of the costs makes the search easier, and does not change the best cut.
"""Exercise e03: where to cut."""

from functools import cache


def balance(costs, stages):
    costs = sorted(costs, reverse=True)

    @cache
    def best(start, k):
        if k == 1:
            return sum(costs[start:]), [len(costs) - start]
        return min(
            (max(sum(costs[start:end]), best(end, k - 1)[0]), [end - start] + best(end, k - 1)[1])
            for end in range(start + 1, len(costs) - k + 2)
        )

    return best(0, stages)[1]
