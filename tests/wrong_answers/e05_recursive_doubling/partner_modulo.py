# says: Rank 1 waits for a message from rank 0, which has returned without sending it
# thinks: a partner past the end wraps round to the start with % p, as in the ring
"""Exercise e05: recursive doubling, the all-reduce for short arrays."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def recursive_doubling_allreduce(comm, x):
    """Sum x over all ranks, in place, by exchanging all of x with one rank a round."""
    rank, p = comm.Get_rank(), comm.Get_size()
    got = np.empty_like(x)
    distance = 1
    while distance < p:
        partner = (rank ^ distance) % p
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        distance *= 2
