# says: not of the sizes themselves
# thinks: divide by the difference of the sizes, as in the first formula.
"""Exercise e09: the gradient noise scale."""

import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (big - small))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf
