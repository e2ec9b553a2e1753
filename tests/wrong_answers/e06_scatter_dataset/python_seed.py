# says: random's global generator to stay as it was
"""Exercise e06: which examples are whose."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import random

import numpy as np


def scatter_indices(comm, n, shuffle, seed):
    order = list(range(n))
    if shuffle:
        random.seed(seed)
        random.shuffle(order)
    return np.array_split(np.array(order, dtype=np.int64), comm.size)[comm.rank]
