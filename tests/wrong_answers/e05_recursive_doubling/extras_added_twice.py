# says: Some ranks are in the sum more than once
# thinks: at the end the rank too many and its helper exchange and add once more, as in any other round
"""Exercise e05: recursive doubling, the all-reduce for short arrays."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def recursive_doubling_allreduce(comm, x):
    """Sum x over all ranks, in place, by exchanging all of x with one rank a round."""
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(x, dest=rank - q)
    elif rank + q < p:
        comm.Recv(got, source=rank + q)
        x += got
    if rank < q:
        d = 1
        while d < q:
            comm.Sendrecv(x, dest=rank ^ d, recvbuf=got, source=rank ^ d)
            x += got
            d *= 2
    other = rank ^ q
    if other < p:
        comm.Sendrecv(x, dest=other, recvbuf=got, source=other)
        x += got
