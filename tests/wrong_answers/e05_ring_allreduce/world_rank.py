# says: It speaks of MPI.COMM_WORLD
# on real ranks
# thinks: the rank is the one in the world, the messages go over comm
"""Exercise e05: the ring all-reduce."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
from mpi4py import MPI


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle."""
    rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
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
