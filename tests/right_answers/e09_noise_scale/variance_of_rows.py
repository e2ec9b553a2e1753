"""Exercise e09: the gradient noise scale."""

import math


def noise_scale(gradients, examples):
    n = gradients[0].shape[0]
    noise = [examples * rows.var(0, unbiased=True).sum().item() for rows in gradients]
    signal = [rows.mean(0).dot(rows.mean(0)).item() - t / (n * examples) for rows, t in zip(gradients, noise)]
    return math.inf if math.fsum(signal) <= 0 else math.fsum(noise) / math.fsum(signal)
