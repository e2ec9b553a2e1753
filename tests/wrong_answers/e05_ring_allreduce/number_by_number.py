# says: One message a step:
# thinks: chunks means single numbers: each goes round on its own
"""Exercise e05: the ring all-reduce."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle."""
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for i in range(len(x)):
        passing = x[i : i + 1].copy()
        for _ in range(size - 1):
            got = np.empty_like(passing)
            comm.Sendrecv(passing, dest=right, recvbuf=got, source=left)
            x[i : i + 1] += got
            passing = got
