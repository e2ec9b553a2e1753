# says: Some ranks are in the sum more than once
# thinks: in each round you exchange with the rank d to the left and the rank d to the right
"""Exercise e05: recursive doubling, the all-reduce for short arrays."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def recursive_doubling_allreduce(comm, x):
    """Sum x over all ranks, in place, by exchanging all of x with one rank a round."""
    rank, p = comm.Get_rank(), comm.Get_size()
    left_got = np.empty_like(x)
    right_got = np.empty_like(x)
    d = 1
    while d < p:
        left, right = (rank - d) % p, (rank + d) % p
        comm.Sendrecv(x, dest=right, recvbuf=left_got, source=left)
        comm.Sendrecv(x, dest=left, recvbuf=right_got, source=right)
        x += left_got
        x += right_got
        d *= 2
