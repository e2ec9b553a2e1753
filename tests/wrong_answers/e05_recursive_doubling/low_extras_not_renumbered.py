# says: Sendrecv: dest=3, but there are ranks 0 to 2
# thinks: the first p - q ranks can step out and the others still find each other with rank ^ distance
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
    extra = p - q
    if rank < extra:
        comm.Send(x, dest=rank + extra)
        comm.Recv(x, source=rank + extra)
        return
    if rank < 2 * extra:
        comm.Recv(got, source=rank - extra)
        x += got
    distance = 1
    while distance < q:
        partner = rank ^ distance
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        distance *= 2
    if rank < 2 * extra:
        comm.Send(x, dest=rank - extra)
