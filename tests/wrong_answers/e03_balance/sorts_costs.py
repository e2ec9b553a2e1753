# says: costs.sort(reverse=True)
# thinks: Sorting the costs makes the search easier, and does not change the best cut.
"""Exercise e03: where to cut."""


def balance(costs, stages):
    costs.sort(reverse=True)
    n = len(costs)
    best = {(0, 0): (0, [])}
    for s in range(1, stages + 1):
        for end in range(s, n + 1):
            options = []
            for start in range(s - 1, end):
                if (s - 1, start) in best:
                    worst, sizes = best[s - 1, start]
                    options.append((max(worst, sum(costs[start:end])), sizes + [end - start]))
            best[s, end] = min(options)
    return best[stages, n][1]
