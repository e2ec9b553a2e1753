# says: Each of q ranks exchanges in each of log2(q) rounds, where q is the largest power of two n
# thinks: log2(p) steps means a tree: reduce to rank 0, then broadcast down the tree
"""Exercise e05: recursive doubling, the all-reduce for short arrays."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def recursive_doubling_allreduce(comm, x):
    """Sum x over all ranks, in place, by exchanging all of x with one rank a round."""
    rank, p = comm.Get_rank(), comm.Get_size()
    got = np.empty_like(x)
    d = 1
    while d < p:
        if rank % (2 * d) == d:
            comm.Send(x, dest=rank - d)
            break
        if rank + d < p:
            comm.Recv(got, source=rank + d)
            x += got
        d *= 2
    d = 1
    while d < p:
        d *= 2
    while d > 1:
        d //= 2
        if rank % (2 * d) == 0 and rank + d < p:
            comm.Send(x, dest=rank + d)
        elif rank % (2 * d) == d:
            comm.Recv(x, source=rank - d)
