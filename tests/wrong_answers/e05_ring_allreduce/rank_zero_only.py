# says: Rank 0 has the sum;
# thinks: the sum is needed on rank 0, as with reduce
"""Exercise e05: the ring all-reduce."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle."""
    rank, size = comm.Get_rank(), comm.Get_size()
    if rank < size - 1:
        buf = np.empty_like(x)
        comm.Recv(buf, source=rank + 1)
        x += buf
    if rank > 0:
        comm.Send(x, dest=rank - 1)
