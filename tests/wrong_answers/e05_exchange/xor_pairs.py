# says: Those are rank 1's numbers
# thinks: pairing ranks by rank ^ 1 is the usual way to exchange without deadlock.
"""Exercise e05: pass an array on to the next rank."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

from mpi4py import MPI  # noqa: F401  for MPI.Request and the like, if you want them


def exchange(comm, send, recv):
    """Send an array to the rank after this one; receive one from the rank before it."""
    rank = comm.Get_rank()
    partner = rank ^ 1
    if partner >= comm.Get_size():
        recv[: len(send)] = send[: len(recv)]
        return
    comm.Sendrecv(send, dest=partner, recvbuf=recv, source=partner)
