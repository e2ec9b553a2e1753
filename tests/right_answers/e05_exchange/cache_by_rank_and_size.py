"""Exercise e05: pass an array on to the next rank."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import functools

from mpi4py import MPI  # noqa: F401  for MPI.Request and the like, if you want them

@functools.lru_cache(maxsize=None)
def neighbours(rank, size):
    return (rank + 1) % size, (rank + size - 1) % size


def exchange(comm, send, recv):
    """Send an array to the rank after this one; receive one from the rank before it."""
    right, left = neighbours(comm.Get_rank(), comm.Get_size())
    reqs = {"out": comm.Isend(send, right), "in": comm.Irecv(recv, left)}
    MPI.Request.Waitall(list(reqs.values()))
