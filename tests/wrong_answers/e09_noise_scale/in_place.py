# says: The gradients still belong to the caller
# thinks: it saves memory.
"""Exercise e09: the gradient noise scale."""

import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        mean = rows.mean(0)
        s = rows.square_().sum(1).mean().item()
        b = (mean**2).sum().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf
