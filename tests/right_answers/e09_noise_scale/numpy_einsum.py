"""Exercise e09: the gradient noise scale."""

import numpy as np


def noise_scale(gradients, examples):
    g = np.stack([rows.numpy() for rows in gradients])
    small = np.einsum("srp,srp->", g, g) / (g.shape[0] * g.shape[1])
    mean = g.mean(1)
    big = np.einsum("sp,sp->", mean, mean) / len(mean)
    ratio = g.shape[1]
    square = (ratio * big - small) / (ratio - 1)
    trace = (small - big) / (1 - 1 / ratio) * examples
    return float(trace / square) if square > 0 else float("inf")
