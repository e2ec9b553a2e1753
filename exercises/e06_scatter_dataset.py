"""Exercise e06: which examples are whose.

A dataset has n examples, numbered 0 to n - 1. Each rank trains on a share of them. Every example must be in exactly one
share. All ranks should have the same amount of work, so the lengths of any two shares differ by one at most.

Many datasets are sorted: all zeros first, then all ones. So examples are shuffled before they are cut into shares. All
ranks must cut the same permutation. A rank that draws its own would take examples that another rank takes, too.

The check runs this on 1, 2, 3 and 4 virtual ranks, and then under mpirun.

Check it with `mpcourse check e06_scatter_dataset`. Stuck? `mpcourse hint e06_scatter_dataset`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def scatter_indices(comm, n, shuffle, seed):
    """Return this rank's share of the examples 0 to n - 1.

    comm: an mpi4py communicator. Every rank calls this function with the same numbers, also if there is only one.
    n: the number of examples, 0 or more, perhaps smaller than the number of ranks.
    shuffle: if False, rank 0 gets the first examples, rank 1 the next ones, and so on, in order. If True, all n
    examples are first put in a random order, which is then cut in the same way.
    seed: an int, 0 or more. The same seed gives the same shares every time, and another seed gives other shares. Do not
    use or change the global random numbers of numpy, torch and Python (np.random.seed and the like).
    Returns a one-dimensional numpy array of int64. Every example is in one rank's array, once. Lengths differ by one at
    most. A rank without examples gets an array of shape (0,).
    """
    raise NotImplementedError("e06_scatter_dataset: make the same order on all ranks, from a generator of its own; cut it evenly; return this rank's piece")
