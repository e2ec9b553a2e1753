# right: Bisects the limit as a float until no float is left between, and fills from the right.
"""Exercise e03: where to cut."""


def balance(costs, stages):
    def fill(limit):
        sizes, total = [0], 0
        for i in range(len(costs) - 1, -1, -1):
            if sizes[-1] and (total + costs[i] > limit or i + 1 == stages - len(sizes)):
                sizes.append(0)
                total = 0
            sizes[-1] += 1
            total += costs[i]
        return sizes[::-1]

    low, high = 0.0, float(sum(costs)) * 2
    while low < (middle := (low + high) / 2) < high:
        if middle >= max(costs) and len(fill(middle)) <= stages:
            high = middle
        else:
            low = middle
    return fill(high)
