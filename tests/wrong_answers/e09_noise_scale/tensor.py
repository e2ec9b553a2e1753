# says: .item() makes one of a tensor
# thinks: a tensor with one number is a number.
"""Exercise e09: the gradient noise scale."""

import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean()
        b = (rows.mean(0) ** 2).sum()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf
