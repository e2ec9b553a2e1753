# why right: the rounds as a recursion: first sum within the half, then exchange with the other half
"""Exercise e05: recursive doubling, the all-reduce for short arrays."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def add_over(comm, x, got, rank, size):
    """Sum x over the aligned block of size ranks that rank is in."""
    if size == 1:
        return
    half = size // 2
    add_over(comm, x, got, rank, half)
    comm.Sendrecv(x, dest=rank ^ half, recvbuf=got, source=rank ^ half)
    x += got


def recursive_doubling_allreduce(comm, x):
    """Sum x over all ranks, in place, by exchanging all of x with one rank a round."""
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(x, dest=rank - q)
        comm.Recv(x, source=rank - q)
        return
    if rank + q < p:
        comm.Recv(got, source=rank + q)
        x += got
    add_over(comm, x, got, rank, q)
    if rank + q < p:
        comm.Send(x, dest=rank + q)
