# says: Each number has its place:
# thinks: adding in longdouble and rounding only when I send makes it more exact; the owner rounds last
"""Exercise e05: the ring all-reduce."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle."""
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(chunks[(rank - step) % size], dest=right, recvbuf=buf, source=left)
        exact = mine.astype(np.longdouble) + buf
        mine[:] = exact
    for step in range(size - 1):
        done = chunks[(rank - step + 1) % size]
        if step == 0:
            done = exact.astype(np.float32).astype(x.dtype)
        comm.Sendrecv(done, dest=right, recvbuf=chunks[(rank - step) % size], source=left)
