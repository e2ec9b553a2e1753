# right: recursion over the steps.
"""Exercise e05: the ring all-reduce."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle."""
    p, r = comm.Get_size(), comm.Get_rank()
    chunks = np.array_split(x, p)

    def go(left_over, i):
        if left_over == 0:
            return
        into = chunks[(i - 1) % p]
        adding = left_over >= p
        got = np.empty_like(into)
        comm.Sendrecv(chunks[i % p], (r + 1) % p, recvbuf=got, source=(r - 1) % p)
        into[...] = into + got if adding else got
        go(left_over - 1, i - 1)

    go(2 * (p - 1), r)
