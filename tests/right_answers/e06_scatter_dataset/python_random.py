# right: Python's generator of its own.
"""Exercise e06: which examples are whose."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import random

import numpy as np


def scatter_indices(comm, n, shuffle, seed):
    order = list(range(n))
    if shuffle:
        random.Random(seed).shuffle(order)
    long, rest = n // comm.size + 1, n % comm.size
    cuts = [i * long if i <= rest else rest * long + (i - rest) * (long - 1) for i in range(comm.size + 1)]
    return np.array(order[cuts[comm.rank] : cuts[comm.rank + 1]], dtype=np.int64).reshape(-1)
