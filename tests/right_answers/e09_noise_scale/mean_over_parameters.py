"""Exercise e09: the gradient noise scale."""

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
