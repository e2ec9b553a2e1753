# says: A receive needs room for all that was sent, which may be longer than what this rank sends
# thinks: what arrives is as long as what I sent.
"""Exercise e05: pass an array on to the next rank."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np

from mpi4py import MPI  # noqa: F401  for MPI.Request and the like, if you want them


def exchange(comm, send, recv):
    """Send an array to the rank after this one; receive one from the rank before it."""
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    incoming = np.empty(len(send), dtype=send.dtype)
    comm.Sendrecv(send, dest=right, recvbuf=incoming, source=left)
    recv[:] = incoming
