# says: is there a tolerance
# thinks: Bisection to within a thousandth is exact enough.
"""Exercise e03: where to cut."""


def balance(costs, stages):
    def fill(limit):
        sizes, total = [0], 0
        for i, cost in enumerate(costs):
            left = len(costs) - i
            if sizes[-1] and (total + cost > limit or left == stages - len(sizes)):
                sizes.append(0)
                total = 0
            sizes[-1] += 1
            total += cost
        return sizes

    low, high = max(costs), sum(costs)
    while high - low > 1e-3:
        middle = (low + high) / 2
        if len(fill(middle)) <= stages:
            high = middle
        else:
            low = middle
    return fill(high)
