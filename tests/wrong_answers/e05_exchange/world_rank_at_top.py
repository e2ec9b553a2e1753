# says: It speaks of MPI.COMM_WORLD
# on real ranks
# thinks: my rank never changes, so I can ask for it once at the top of the file.
"""Exercise e05: pass an array on to the next rank."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

from mpi4py import MPI  # noqa: F401  for MPI.Request and the like, if you want them

rank = MPI.COMM_WORLD.Get_rank()
size = MPI.COMM_WORLD.Get_size()


def exchange(comm, send, recv):
    """Send an array to the rank after this one; receive one from the rank before it."""
    comm.Sendrecv(send, dest=(rank + 1) % size, recvbuf=recv, source=(rank - 1) % size)
