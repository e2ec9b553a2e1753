# says: A stage without a layer
# thinks: A stage's start runs from 0 to its end, and best[s][0] is 0 for every s.
"""Exercise e03: where to cut."""


def balance(costs, stages):
    n = len(costs)
    best = [[(0, [0] * s)] + [None] * n for s in range(stages + 1)]
    for end in range(1, n + 1):
        best[0][end] = (float("inf"), [])
    for s in range(1, stages + 1):
        for end in range(1, n + 1):
            best[s][end] = min(
                (max(best[s - 1][start][0], sum(costs[start:end])), best[s - 1][start][1] + [end - start])
                for start in range(end + 1)
            )
    return best[stages][n][1]
