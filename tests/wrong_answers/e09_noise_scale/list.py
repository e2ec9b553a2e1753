# says: Average |G|^2 over steps, and S over steps, then divide once
# thinks: one noise scale a step.
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
        S.append((s - b) / (1 / small - 1 / big))
    return [s / g for s, g in zip(S, G)]
