# says: The length itself is not what the formulas take
# thinks: |g| is the norm.
"""Exercise e09: the gradient noise scale."""

import math


def noise_scale(gradients, examples):
    ranks = len(gradients[0])
    small, big = examples, examples * ranks
    G, S = [], []
    for rows in gradients:
        s = rows.norm(dim=1).mean().item()
        b = rows.mean(0).norm().item()
        G.append((big * b - small * s) / (big - small))
        S.append((s - b) / (1 / small - 1 / big))
    return sum(S) / sum(G) if sum(G) > 0 else math.inf
