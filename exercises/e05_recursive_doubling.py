"""Exercise e05: recursive doubling, the all-reduce for short arrays.

The ring sends few bytes, but needs 2 (p - 1) steps. If x is short, the number of steps determines the time. Here every
rank exchanges all of x with one other rank in each round, and both add what they receive. In the first round neighbours
exchange: 0 with 1, 2 with 3. Then both have the sum of two ranks. The next round reaches twice as far: 0 exchanges with
2, and 1 with 3. After k rounds each rank has the sum of 2^k ranks. So 8 ranks need 3 rounds, and the ring needs 14
steps.

Let q be the largest power of two that is not above p, the number of ranks. If p is not a power of two, there are p - q
ranks too many, the extra ranks. Each extra rank first sends its x to one of the q ranks, a different one for each, and
receives the sum from this rank at the end.

The check runs this on 1, 2, 3, 4, 7 and 8 virtual ranks, counts bytes and messages, and then runs it under mpirun.

Check it with `mpcourse check e05_recursive_doubling`. Stuck? `mpcourse hint e05_recursive_doubling`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def recursive_doubling_allreduce(comm, x):
    """Sum x over all ranks, in place, by exchanging all of x with one rank in each round.

    comm: an mpi4py communicator of any number of ranks. Every rank calls this function, even if there is only one.
    x: a one-dimensional numpy array of any length, and of any dtype that can be added. Length and dtype are the same on
    all ranks.
    In the rounds, each of the q ranks sends log2(q) messages, and each message is all of x. Each extra rank sends one
    message and receives one.
    Returns nothing.
    """
    raise NotImplementedError("e05_recursive_doubling: take x from an extra rank; exchange with rank ^ 1, rank ^ 2, rank ^ 4, ...; give the sum back")
