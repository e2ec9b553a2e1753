# right: the global generator, put back as it was.
"""Exercise e06: which examples are whose."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def scatter_indices(comm, n, shuffle, seed):
    if not shuffle:
        order = np.arange(n)
    else:
        before = np.random.get_state()
        np.random.seed(seed)
        order = np.random.permutation(n)
        np.random.set_state(before)
    return np.array_split(order, comm.size)[comm.rank]
