# says: Sendrecv: dest=7, but there are ranks 0 to 6
# thinks: no power of two just means that the number of ranks is odd, so the last rank is the one too many
"""Exercise e05: recursive doubling, the all-reduce for short arrays."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def recursive_doubling_allreduce(comm, x):
    """Sum x over all ranks, in place, by exchanging all of x with one rank a round."""
    rank, p = comm.Get_rank(), comm.Get_size()
    if p == 1:
        return
    q = p - p % 2
    got = np.empty_like(x)
    if rank == q:
        comm.Send(x, dest=0)
        comm.Recv(x, source=0)
        return
    if rank == 0 and p != q:
        comm.Recv(got, source=q)
        x += got
    d = 1
    while d < q:
        comm.Sendrecv(x, dest=rank ^ d, recvbuf=got, source=rank ^ d)
        x += got
        d *= 2
    if rank == 0 and p != q:
        comm.Send(x, dest=q)
