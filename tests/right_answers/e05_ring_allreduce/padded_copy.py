# right: works on a zero-padded copy with equal rows, and writes it back.
# on real ranks
"""Exercise e05: the ring all-reduce."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle."""
    rank, size = comm.Get_rank(), comm.Get_size()
    n = len(x)
    c = -(-n // size)
    rows = np.zeros((size, c), dtype=x.dtype)
    rows.reshape(-1)[:n] = x
    buf = np.empty(c, dtype=x.dtype)
    for step in range(size - 1):
        comm.Sendrecv(rows[(rank - step) % size], (rank + 1) % size, recvbuf=buf, source=(rank - 1) % size)
        rows[(rank - step - 1) % size] += buf
    for step in range(size - 1):
        comm.Sendrecv(rows[(rank - step + 1) % size], (rank + 1) % size,
                      recvbuf=rows[(rank - step) % size], source=(rank - 1) % size)
    x[:] = rows.reshape(-1)[:n]
