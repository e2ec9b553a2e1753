# says: Is each of them tried
# thinks: Start with equal counts and move a border as long as that helps.
"""Exercise e03: where to cut."""


def balance(costs, stages):
    each, rest = divmod(len(costs), stages)
    sizes = [each + (i < rest) for i in range(stages)]

    def worst(sizes):
        start, sums = 0, []
        for size in sizes:
            sums.append(sum(costs[start : start + size]))
            start += size
        return max(sums)

    improved = True
    while improved:
        improved = False
        for i in range(stages - 1):
            for step in (1, -1):
                moved = list(sizes)
                moved[i] += step
                moved[i + 1] -= step
                if min(moved) >= 1 and worst(moved) < worst(sizes):
                    sizes, improved = moved, True
    return sizes
