"""Exercise e06: which examples are whose.

A data set has n examples, numbered 0 to n - 1. Each rank trains on a share of them. No example may be lost, none may be
in two shares, and no rank may have much more to do than another: shares differ by one example at most.

Often data sets are sorted, all zeros first, then all ones. So they are shuffled before they are cut, and all ranks must
cut the same permutation. A rank that draws one of its own takes examples which another one has, too.

The check runs this on 1, 2, 3 and 4 virtual ranks, and then under mpirun.

Check it with `mpcourse check e06_scatter_dataset`. Stuck? `mpcourse hint e06_scatter_dataset`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def scatter_indices(comm, n, shuffle, seed):
    """This rank's share of the examples 0 to n - 1.

    comm: an mpi4py communicator. Every rank calls this function, also the only rank of one, with the same numbers.
    n: how many examples there are; 0 or more, and maybe fewer than ranks.
    shuffle: False: rank 0 gets the first examples, rank 1 the next ones, and so on, in their order. True: all n
    examples are put in a random order first, and shares are cut from that.
    seed: an int, 0 or more. The same seed gives the same shares every time, another one gives others. The global random
    numbers of numpy, torch and Python (np.random.seed and the like) are neither used nor changed.
    Returns a numpy array of int64 with one axis. Every example is in one rank's array, once. Lengths differ by one at
    most; a rank without examples gets an array of shape (0,).
    """
    # solution: the same order on all ranks, from a generator of its own; cut evenly; take this rank's piece
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    return np.array_split(order, comm.size)[comm.rank].astype(np.int64)
    # end of solution
