# says: consecutive layers
# thinks: This is bin packing: the dearest layer first, each to the stage that has least.
"""Exercise e03: where to cut."""


def balance(costs, stages):
    totals, counts = [0] * stages, [0] * stages
    for cost in sorted(costs, reverse=True):
        least = min(range(stages), key=lambda i: totals[i])
        totals[least] += cost
        counts[least] += 1
    return counts
