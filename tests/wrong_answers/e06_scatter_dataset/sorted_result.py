# says: Nothing was shuffled
"""Exercise e06: which examples are whose."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def scatter_indices(comm, n, shuffle, seed):
    order = np.arange(n)
    if shuffle:
        sorted(order, key=lambda i: np.random.default_rng(seed).random())
    return np.array_split(order, comm.size)[comm.rank]
