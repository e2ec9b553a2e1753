# says: Those are this rank's own numbers
# thinks: send is the whole ring's array, and np.roll shifts it on by one.
"""Exercise e05: pass an array on to the next rank."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np

from mpi4py import MPI  # noqa: F401  for MPI.Request and the like, if you want them


def exchange(comm, send, recv):
    """Send an array to the rank after this one; receive one from the rank before it."""
    recv[:] = np.roll(send, 1)
