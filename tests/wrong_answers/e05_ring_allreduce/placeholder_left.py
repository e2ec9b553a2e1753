# says: There is code in ring_allreduce, but the raise is still there
# thinks: an unfinished answer can be checked as it is
"""Exercise e05: the ring all-reduce."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle."""
    rank, size = comm.Get_rank(), comm.Get_size()
    if size == 1:
        return
    raise NotImplementedError("e05_ring_allreduce: p - 1 steps that add up, p - 1 steps that copy; each passes one chunk to the next rank")
