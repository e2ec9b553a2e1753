# says: From its beginning to its Wait a request has its buffer for itself
# thinks: Wait only has to come before the next round
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
        comm.Recv(x, source=rank - q)
        return
    if rank + q < p:
        comm.Recv(got, source=rank + q)
        x += got
    distance = 1
    while distance < q:
        partner = rank ^ distance
        sent = comm.Isend(x, dest=partner)
        comm.Recv(got, source=partner)
        x += got
        sent.Wait()
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)
