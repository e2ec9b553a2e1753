# says: Ranks 0, 2 have the sum;
# thinks: where rank ^ distance does not exist there is nobody to exchange with, so that round can just be left out
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
        partner = rank ^ distance
        if partner < p:
            comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
            x += got
        distance *= 2
