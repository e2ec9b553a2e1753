# says: np.random's global generator to stay as it was
"""Exercise e06: which examples are whose."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def scatter_indices(comm, n, shuffle, seed):
    np.random.seed(seed)
    order = np.random.permutation(n) if shuffle else np.arange(n)
    return np.array_split(order, comm.size)[comm.rank]
