# says: the places where stages end
# thinks: The result says where each stage ends.
"""Exercise e03: where to cut."""


def balance(costs, stages):
    n = len(costs)
    best = {(0, 0): (0, [])}
    for s in range(1, stages + 1):
        for end in range(s, n + 1):
            options = []
            for start in range(s - 1, end):
                if (s - 1, start) in best:
                    worst, cuts = best[s - 1, start]
                    options.append((max(worst, sum(costs[start:end])), cuts + [end]))
            best[s, end] = min(options)
    return best[stages, n][1]
