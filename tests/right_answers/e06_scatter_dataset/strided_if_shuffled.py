# right: a permutation may be dealt out; only without shuffle shares are runs.
"""Exercise e06: which examples are whose."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def scatter_indices(comm, n, shuffle, seed):
    if shuffle:
        return np.random.Generator(np.random.PCG64(seed)).permutation(n)[comm.rank :: comm.size]
    return np.array_split(np.arange(n), comm.size)[comm.rank]
