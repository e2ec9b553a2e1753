# says: A part that was in the sum came in again:
# thinks: both phases are the same loop, so I run it twice as long and add each time
"""Exercise e05: the ring all-reduce."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle."""
    rank, size = comm.Get_rank(), comm.Get_size()
    chunks = np.array_split(x, size)
    for step in range(2 * (size - 1)):
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(chunks[(rank - step) % size], dest=(rank + 1) % size, recvbuf=buf, source=(rank - 1) % size)
        mine += buf
