# says: In round k each rank exchanges with one other, whose number differs by 2^k:
# thinks: passing all of x round the ring p - 1 times is the all-reduce for short arrays
"""Exercise e05: recursive doubling, the all-reduce for short arrays."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def recursive_doubling_allreduce(comm, x):
    """Sum x over all ranks, in place, by exchanging all of x with one rank a round."""
    rank, p = comm.Get_rank(), comm.Get_size()
    going = x.copy()
    got = np.empty_like(x)
    for _ in range(p - 1):
        comm.Sendrecv(going, dest=(rank + 1) % p, recvbuf=got, source=(rank - 1) % p)
        x += got
        going, got = got, going
