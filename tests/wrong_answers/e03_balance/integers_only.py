# says: Is something rounded
# thinks: Costs are integers, so the best limit is found by bisection of integers.
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

    low, high = int(max(costs)), int(sum(costs)) + 1
    while low < high:
        middle = (low + high) // 2
        if len(fill(middle)) <= stages:
            high = middle
        else:
            low = middle + 1
    return fill(low)
