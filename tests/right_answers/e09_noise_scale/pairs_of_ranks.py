"""Exercise e09: the gradient noise scale."""

import math
import statistics


def noise_scale(gradients, examples):
    inner, outer = [], []
    for rows in gradients:
        products = rows @ rows.T
        n = len(rows)
        inner.append(products.trace().item() / n)
        outer.append((products.sum() - products.trace()).item() / (n * (n - 1)))  # two ranks share G, and no noise
    square = statistics.fmean(outer)
    return examples * (statistics.fmean(inner) - square) / square if square > 0 else math.inf
