# says: lengths differ by one at most
"""Exercise e06: which examples are whose."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    k = n // comm.size
    end = (comm.rank + 1) * k if comm.rank < comm.size - 1 else n
    return order[comm.rank * k : end]
