# says: That is the square of the sum of all numbers
# thinks: sum, then square.
"""Exercise e09: the gradient noise scale."""

import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows.sum(1) ** 2).mean().item()
        b = (rows.mean(0).sum() ** 2).item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf
