# why right: the sum grows in an array of its own and is written to x at the end
"""Exercise e05: recursive doubling, the all-reduce for short arrays."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def recursive_doubling_allreduce(comm, x):
    """Sum x over all ranks, in place, by exchanging all of x with one rank a round."""
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1 << (p.bit_length() - 1)
    total = x.copy()
    got = np.empty_like(total)
    if rank < q:
        if rank + q < p:
            comm.Recv(got, source=rank + q)
            total = total + got
        distance = 1
        while distance < q:
            comm.Sendrecv(total, dest=rank ^ distance, recvbuf=got, source=rank ^ distance)
            total = total + got
            distance *= 2
        if rank + q < p:
            comm.Send(total, dest=rank + q)
    else:
        comm.Send(total, dest=rank - q)
        comm.Recv(total, source=rank - q)
    x[...] = total
