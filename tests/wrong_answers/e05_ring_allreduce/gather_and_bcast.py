# says: In the ring each rank sends to one neighbour, always the same, and receives from the other
# thinks: rank 0 collects everything, adds and sends it to all
"""Exercise e05: the ring all-reduce."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle."""
    rank, size = comm.Get_rank(), comm.Get_size()
    if rank == 0:
        buf = np.empty_like(x)
        for r in range(1, size):
            comm.Recv(buf, source=r)
            x += buf
        for r in range(1, size):
            comm.Send(x, dest=r)
    else:
        comm.Send(x, dest=0)
        comm.Recv(x, source=0)
