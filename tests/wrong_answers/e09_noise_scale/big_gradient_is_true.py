# says: It is too large, by S / big
# thinks: the mean of all ranks is the true gradient.
"""Exercise e09: the gradient noise scale."""

import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = (rows**2).sum(1).mean().item()
        b = (rows.mean(0) ** 2).sum().item()
        G.append(b)
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf
