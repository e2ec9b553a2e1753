# says: There is no such rank here:
# on real ranks
# thinks: the neighbours are always the same, so work them out in the first call and keep them.
"""Exercise e05: pass an array on to the next rank."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

from mpi4py import MPI  # noqa: F401  for MPI.Request and the like, if you want them

_neighbours = None


def exchange(comm, send, recv):
    """Send an array to the rank after this one; receive one from the rank before it."""
    global _neighbours
    if _neighbours is None:
        rank, size = comm.Get_rank(), comm.Get_size()
        _neighbours = ((rank + 1) % size, (rank - 1) % size)
    right, left = _neighbours
    comm.Sendrecv(send, dest=right, recvbuf=recv, source=left)
