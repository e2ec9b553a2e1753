"""Unusual right answers to e09_noise_scale. What a cell holds is told in tests/answers.py."""

# %% mean_over_parameters
# thinks: It takes means over parameters in place of sums, which scales S and |G|^2 alike and cancels in the quotient.
import math


def noise_scale(gradients, examples):
    class Mean:
        def __init__(self):
            self.value, self.count = 0.0, 0

        def add(self, x):
            self.count += 1
            self.value += (float(x) - self.value) / self.count

    signal, noise = Mean(), Mean()
    for rows in gradients:
        big_batch = examples * rows.shape[0]
        small_square, big_square = rows.pow(2).mean(), rows.mean(dim=0).pow(2).mean()
        signal.add((big_batch * big_square - examples * small_square) / (big_batch - examples))
        noise.add((small_square - big_square) / (1 / examples - 1 / big_batch))
    return noise.value / signal.value if signal.value > 0 else math.inf


# %% numpy_einsum
# thinks: It averages both squares over all steps before it solves, which is the same because the equations are
#   linear.
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


# %% pairs_of_ranks
# thinks: The mean product of two different ranks' gradients is |G|^2, for their noise is independent; the formulas
#   give the same.
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


# %% variance_of_rows
# thinks: The unbiased variance of the ranks' gradients times examples is S, and |G|^2 is big_square without its share
#   of that.
import math


def noise_scale(gradients, examples):
    n = gradients[0].shape[0]
    noise = [examples * rows.var(0, unbiased=True).sum().item() for rows in gradients]
    signal = [rows.mean(0).dot(rows.mean(0)).item() - t / (n * examples) for rows, t in zip(gradients, noise)]
    return math.inf if math.fsum(signal) <= 0 else math.fsum(noise) / math.fsum(signal)
