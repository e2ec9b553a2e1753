"""Exercise e05: recursive doubling, the all-reduce for short arrays.

The ring sends few bytes, and needs 2 (p - 1) steps. Where x is short, steps are what costs. Here every rank exchanges
all of x with one other rank, and both add what they got. In the first round that is the neighbour: 0 with 1, 2 with 3.
Then both hold the sum of two, and the next round goes twice as far: 0 with 2, 1 with 3. After k rounds each rank holds
the sum of 2^k ranks. So 8 ranks need 3 rounds, where the ring needs 14 steps.

Where the number of ranks is no power of two, some are too many. Let q be the largest power of two that is not above p.
The p - q ranks too many first give their x away, each to another one of the q, and get the sum from it in the end.

The check runs this on 1, 2, 3, 4, 7 and 8 virtual ranks, counts bytes and messages, and then runs it under mpirun.

Check it with `mpcourse check e05_recursive_doubling`. Stuck? `mpcourse hint e05_recursive_doubling`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def recursive_doubling_allreduce(comm, x):
    """Sum x over all ranks, in place, by exchanging all of x with one rank a round.

    comm: an mpi4py communicator. Every rank calls this function, also if there is only one. Any number of ranks.
    x: a one-dimensional numpy array of any dtype that adds, of any length. Same length and dtype on all ranks.
    Of q ranks, a power of two, each sends log2(q) messages of all of x. Each rank too many sends one, and is sent one.
    Returns nothing.
    """
    raise NotImplementedError("e05_recursive_doubling: ranks too many give theirs away; the others exchange with rank ^ 1, rank ^ 2, rank ^ 4, ...; give back")
