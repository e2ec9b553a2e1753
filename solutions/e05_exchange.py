"""Exercise e05: pass an array on to the next rank.

The ranks form a circle: rank 1 comes after rank 0, and so on, and rank 0 comes after the last rank. Every rank sends an
array to the rank after it, and receives one from the rank before it, all at the same time. That is one step of a ring
all-reduce.

If every rank sends first, each may wait for a receiver that is itself still sending. A short array hides this, because
MPI keeps a copy of it and lets the sender continue. MPI keeps no copy of a long array, so its sender waits.

The check runs this on 1, 2, 3, 4 and 7 virtual ranks, which keep no copies, and then under mpirun.

Check it with `mpcourse check e05_exchange`. Stuck? `mpcourse hint e05_exchange`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

from mpi4py import MPI  # noqa: F401  for MPI.Request and the like, if you want them


def exchange(comm, send, recv):
    """Send an array to the rank after this one, and receive one from the rank before this one.

    comm: an mpi4py communicator. Every rank calls this function, even if there is only one.
    send: a numpy array of any length, which goes to rank + 1, or from the last rank to rank 0. It is not changed.
    recv: a numpy array with the length and dtype of the array that arrives, which overwrites it.
    Each rank sends its array as it is, in one message. Lengths may differ from rank to rank.
    Returns nothing.
    """
    # solution: send to the next rank and receive from the one before, at the same time
    comm.Sendrecv(send, (comm.rank + 1) % comm.size, recvbuf=recv, source=(comm.rank - 1) % comm.size)
    # end of solution
