# right: even ranks send first, odd ranks receive first: no circle of waiting, also for odd p.
"""Exercise e05: the ring all-reduce."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle."""
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size

    def shift(out, into):
        if rank % 2 == 0:
            comm.Send(out, dest=right)
            comm.Recv(into, source=left)
        else:
            comm.Recv(into, source=left)
            comm.Send(out, dest=right)

    chunks = np.array_split(x, size)
    for step in range(size - 1):
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        shift(chunks[(rank - step) % size], buf)
        mine += buf
    for step in range(size - 1):
        shift(chunks[(rank - step + 1) % size], chunks[(rank - step) % size])
