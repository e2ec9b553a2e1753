# says: In the end no x holds a sum of two ranks
# thinks: my own chunk is already in, so p - 2 additions are enough
"""Exercise e05: the ring all-reduce."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle."""
    p, r, n = comm.size, comm.rank, len(x)
    nxt, prv = (r + 1) % p, (r - 1) % p
    edge = [i * n // p for i in range(p + 1)]

    def chunk(i):
        i = i % p
        return x[edge[i] : edge[i + 1]]

    for s in range(p - 2):
        mine = chunk(r - s - 1)
        tmp = np.zeros(len(mine), dtype=x.dtype)
        req = comm.Isend(chunk(r - s), dest=nxt)
        comm.Recv(tmp, source=prv)
        req.Wait()
        mine += tmp
    for s in range(p - 1):
        req = comm.Isend(chunk(r + 1 - s), dest=nxt)
        comm.Recv(chunk(r - s), source=prv)
        req.Wait()
