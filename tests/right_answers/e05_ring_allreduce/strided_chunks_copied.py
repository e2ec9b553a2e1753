# right: chunk i is x[i::p], copied into contiguous buffers and written back.
"""Exercise e05: the ring all-reduce."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle."""
    p, r = comm.Get_size(), comm.Get_rank()
    right, left = (r + 1) % p, (r - 1) % p
    for s in range(2 * (p - 1)):
        mine = x[(r - s - 1) % p :: p]
        got = np.empty(mine.shape, dtype=x.dtype)
        comm.Sendrecv(np.ascontiguousarray(x[(r - s) % p :: p]), right, recvbuf=got, source=left)
        if s < p - 1:
            mine += got
        else:
            mine[:] = got
