# why right: the last rank gives to rank 0, the last but one to rank 1, and so on
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
    mirror = p - 1 - rank
    if rank >= q:
        comm.Send(x, dest=mirror)
        comm.Recv(x, source=mirror)
        return
    if mirror >= q:
        comm.Recv(got, source=mirror)
        x += got
    d = 1
    while d < q:
        comm.Sendrecv(x, dest=rank ^ d, recvbuf=got, source=rank ^ d)
        x += got
        d *= 2
    if mirror >= q:
        comm.Send(x, dest=mirror)
