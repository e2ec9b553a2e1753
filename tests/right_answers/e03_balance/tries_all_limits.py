# right: Tries every possible limit, the sums of consecutive layers, from the smallest up.
"""Exercise e03: where to cut."""


def balance(costs, stages):
    n = len(costs)

    def fill(limit):
        sizes, start = [], 0
        for later in range(stages - 1, -1, -1):
            end = start + 1
            while end < n - later and sum(costs[start : end + 1]) <= limit:
                end += 1
            sizes.append(end - start)
            start = end
        return sizes if start == n else None

    limits = {sum(costs[a:b]) for a in range(n) for b in range(a + 1, n + 1)}
    for limit in sorted(x for x in limits if x >= max(costs)):
        sizes = fill(limit)
        if sizes:
            return sizes
