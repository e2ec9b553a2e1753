# says: filled up to the average
# thinks: Each stage takes what comes closest to the average of what remains, which corrects earlier errors.
"""Exercise e03: where to cut."""


def balance(costs, stages):
    sizes, start = [], 0
    for stage in range(stages, 1, -1):
        target = sum(costs[start:]) / stage
        end, total = start + 1, costs[start]
        while end < len(costs) - stage + 1 and abs(total + costs[end] - target) <= abs(total - target):
            total += costs[end]
            end += 1
        sizes.append(end - start)
        start = end
    return sizes + [len(costs) - start]
