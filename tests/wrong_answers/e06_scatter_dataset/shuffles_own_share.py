# says: Each run was shuffled for itself
"""Exercise e06: which examples are whose."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def scatter_indices(comm, n, shuffle, seed):
    share = np.array_split(np.arange(n), comm.size)[comm.rank]
    if shuffle:
        np.random.default_rng(seed).shuffle(share)
    return share
