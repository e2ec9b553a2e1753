# says: as many sizes as stages
# thinks: Closing a stage at the average gives as many stages as wanted.
"""Exercise e03: where to cut."""


def balance(costs, stages):
    target = sum(costs) / stages
    sizes, size, total = [], 0, 0
    for cost in costs:
        if size and total + cost > target:
            sizes.append(size)
            size, total = 0, 0
        size += 1
        total += cost
    sizes.append(size)
    return sizes
