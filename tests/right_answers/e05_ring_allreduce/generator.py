# right: a generator yields what each step sends, receives, and whether it adds.
"""Exercise e05: the ring all-reduce."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def plan(p, r):
    for s in range(p - 1):
        yield (r - s) % p, (r - s - 1) % p, True
    for s in range(p - 1):
        yield (r + 1 - s) % p, (r - s) % p, False


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle."""
    p, r = comm.size, comm.rank
    cuts = [slice(len(x) * i // p, len(x) * (i + 1) // p) for i in range(p)]
    for out, into, add in plan(p, r):
        got = np.empty(cuts[into].stop - cuts[into].start, dtype=x.dtype)
        comm.Sendrecv(x[cuts[out]], dest=(r + 1) % p, recvbuf=got, source=(r - 1) % p)
        x[cuts[into]] = x[cuts[into]] + got if add else got
