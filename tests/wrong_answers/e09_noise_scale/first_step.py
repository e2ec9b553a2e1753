# says: That is the first step's alone
# thinks: return as soon as it is known.
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
        return (s - b) / (1 / small - 1 / big) / G[0] if G[0] > 0 else math.inf
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf
