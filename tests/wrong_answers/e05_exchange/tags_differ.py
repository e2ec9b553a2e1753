# says: a receive takes its own tag only
# thinks: a tag says which operation it is: 1 for sends and 2 for receives.
"""Exercise e05: pass an array on to the next rank."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

from mpi4py import MPI  # noqa: F401  for MPI.Request and the like, if you want them


def exchange(comm, send, recv):
    """Send an array to the rank after this one; receive one from the rank before it."""
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    comm.Sendrecv(send, dest=right, sendtag=1, recvbuf=recv, source=left, recvtag=2)
