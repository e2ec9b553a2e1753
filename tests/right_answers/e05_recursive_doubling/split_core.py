# why right: the q ranks get a communicator of their own with Split, and no rank takes part in it that is too many
# on real ranks
"""Exercise e05: recursive doubling, the all-reduce for short arrays."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def recursive_doubling_allreduce(comm, x):
    """Sum x over all ranks, in place, by exchanging all of x with one rank a round."""
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1 << (p.bit_length() - 1)
    core = comm.Split(0 if rank < q else 1, rank)
    if rank >= q:
        comm.Send(x, dest=rank - q)
        comm.Recv(x, source=rank - q)
    else:
        got = np.empty_like(x)
        if rank + q < p:
            comm.Recv(got, source=rank + q)
            x += got
        me, distance = core.Get_rank(), 1
        while distance < q:
            core.Sendrecv(x, dest=me ^ distance, recvbuf=got, source=me ^ distance)
            x += got
            distance *= 2
        if rank + q < p:
            comm.Send(x, dest=rank + q)
    core.Free()
