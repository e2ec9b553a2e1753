"""Exercise e05: the ring all-reduce.

Every rank has an array x, all of one length. Afterwards every rank's x is the sum of all of them, number by number.
Ranks stand in a circle and talk to their neighbours only: send to rank + 1, receive from rank - 1.

x is cut into as many chunks as there are ranks. For p - 1 steps each rank sends one chunk, receives another one, and
adds that to its own: then each rank holds one chunk that is complete. For p - 1 more steps complete chunks go round.
All ranks send in every step, so that all links are busy.

Each rank sends 2 (p - 1) messages of a p-th of x: about twice x, however many ranks there are. No way needs less.

The check runs this on 1, 2, 3, 4 and 7 virtual ranks, counts bytes and messages, and then runs it under mpirun.

Check it with `mpcourse check e05_ring_allreduce`. Stuck? `mpcourse hint e05_ring_allreduce`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle.

    comm: an mpi4py communicator. Every rank calls this function, also if there is only one.
    x: a one-dimensional numpy array of any dtype that adds, of any length: it need not divide into equal chunks, and
    may have fewer numbers than there are ranks, or none. Same length and dtype on all ranks.
    Returns nothing.
    """
    raise NotImplementedError("e05_ring_allreduce: p - 1 steps that add up, p - 1 steps that copy; each passes one chunk to the next rank")
