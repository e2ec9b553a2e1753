# why right: works on a contiguous copy, so that x may also be a view with steps such as y[::2]
"""Exercise e05: recursive doubling, the all-reduce for short arrays."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def recursive_doubling_allreduce(comm, x):
    """Sum x over all ranks, in place, by exchanging all of x with one rank a round."""
    rank, p = comm.Get_rank(), comm.Get_size()
    work = np.array(x, copy=True, order="C")
    got = np.empty_like(work)
    q = 1
    while q << 1 <= p:
        q <<= 1
    if rank >= q:
        comm.Send(work, dest=rank - q)
        comm.Recv(work, source=rank - q)
    else:
        helps = rank + q < p
        if helps:
            comm.Recv(got, source=rank + q)
            work += got
        for partner in (rank ^ 1 << k for k in range(q.bit_length() - 1)):
            comm.Sendrecv(work, dest=partner, recvbuf=got, source=partner)
            work += got
        if helps:
            comm.Send(work, dest=rank + q)
    np.copyto(x, work)
