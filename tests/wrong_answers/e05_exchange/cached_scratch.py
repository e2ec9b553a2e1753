# says: The message is longer than the buffer that receives it
# on real ranks
# thinks: allocating is slow, so keep one scratch buffer from the first call, all arrays are the same size anyway.
"""Exercise e05: pass an array on to the next rank."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np

from mpi4py import MPI  # noqa: F401  for MPI.Request and the like, if you want them

_scratch = {}


def exchange(comm, send, recv):
    """Send an array to the rank after this one; receive one from the rank before it."""
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    rank = comm.Get_rank()
    if rank not in _scratch:
        _scratch[rank] = np.empty_like(recv)
    buf = _scratch[rank]
    comm.Sendrecv(send, dest=right, recvbuf=buf, source=left)
    recv[:] = buf
