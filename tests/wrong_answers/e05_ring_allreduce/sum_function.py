# says: That adds up the numbers of x, too
# thinks: the sum over all ranks is one number
"""Exercise e05: the ring all-reduce."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle."""
    rank, size = comm.Get_rank(), comm.Get_size()
    total = np.array([x.sum()])
    out = total.copy()
    for _ in range(size - 1):
        comm.Sendrecv_replace(out, dest=(rank + 1) % size, source=(rank - 1) % size)
        total += out
    x[:] = total
