# says: From its beginning to its Wait a request has its buffer for itself
# thinks: I can post all receives first, into one buffer
"""Exercise e05: the ring all-reduce."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle."""
    p, r = comm.size, comm.rank
    right, left = (r + 1) % p, (r - 1) % p
    chunks = np.array_split(x, p)
    buf = np.empty_like(chunks[0])
    sizes = [len(chunks[(r - s - 1) % p]) for s in range(p - 1)]
    reqs = [comm.Irecv(buf[:k], source=left) for k in sizes]
    for s in range(p - 1):
        send = comm.Isend(chunks[(r - s) % p], dest=right)
        reqs[s].Wait()
        send.Wait()
        chunks[(r - s - 1) % p] += buf[: sizes[s]]
    for s in range(p - 1):
        comm.Sendrecv(chunks[(r + 1 - s) % p], dest=right, recvbuf=chunks[(r - s) % p], source=left)
