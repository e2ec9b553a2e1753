# says: It speaks of MPI.COMM_WORLD
"""Exercise e06: which examples are whose."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

# on real ranks: virtual ones are all in COMM_WORLD
import numpy as np
from mpi4py import MPI


def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    return np.array_split(order, MPI.COMM_WORLD.size)[MPI.COMM_WORLD.rank]
