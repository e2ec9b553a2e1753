# says: this array is not contiguous
# thinks: chunk i may be x[i::p], MPI sends any numpy view
"""Exercise e05: the ring all-reduce."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle."""
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = [x[i::size] for i in range(size)]
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)
