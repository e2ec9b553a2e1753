# says: They send one after the other:
# thinks: to avoid a deadlock the ranks send one after another within a step
"""Exercise e05: the ring all-reduce."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle."""
    rank, size = comm.Get_rank(), comm.Get_size()
    chunks = np.array_split(x, size)

    def one_step(out, into):
        for turn in range(size):
            if rank == turn:
                comm.Send(out, dest=(rank + 1) % size)
            elif rank == (turn + 1) % size:
                comm.Recv(into, source=turn)
            comm.Barrier()

    for step in range(size - 1):
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        one_step(chunks[(rank - step) % size], buf)
        mine += buf
    for step in range(size - 1):
        one_step(chunks[(rank - step + 1) % size], chunks[(rank - step) % size])
