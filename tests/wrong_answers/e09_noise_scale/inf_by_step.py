# says: several are not
# thinks: a step without a signal has an infinite noise scale, so leave it out.
"""Exercise e09: the gradient noise scale."""

import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        if big * b - small * s <= 0:
            continue
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf
