"""Exercise e05: the ring all-reduce.

Every rank has an array x, with the same length on all ranks. Afterwards every rank's x is the elementwise sum of all
these arrays. The ranks form a circle, and each talks only to its neighbours: it sends to rank + 1 and receives from
rank - 1.

Each of the p ranks cuts its x into p chunks. For p - 1 steps each rank sends one chunk, receives another one, and adds
what it received to its own x. Then each rank has one finished chunk, which is the sum over all ranks. For p - 1 more
steps the finished chunks go round the circle. All ranks send in every step, so all links are busy.

Each rank sends 2 (p - 1) messages, and each message is a p-th of x. Together they are about twice as long as x, however
many ranks there are. No algorithm sends less.

The check runs this on 1, 2, 3, 4 and 7 virtual ranks, counts bytes and messages, and then runs it under mpirun.

Check it with `mpcourse check e05_ring_allreduce`. Stuck? `mpcourse hint e05_ring_allreduce`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import numpy as np


def ring_allreduce(comm, x):
    """Sum x over all ranks, in place, by messages between neighbours in the circle.

    comm: an mpi4py communicator. Every rank calls this function, even if there is only one.
    x: a one-dimensional numpy array of any length, and of any dtype that can be added. x need not divide into equal
    chunks, and may have fewer elements than there are ranks, or none. Length and dtype are the same on all ranks.
    Returns nothing.
    """
    # solution: run p - 1 steps that add, then p - 1 steps that copy; in each step pass one chunk to the next rank
    p, rank = comm.size, comm.rank
    chunks = np.array_split(x, p)  # views of x, so a write to a chunk changes x
    landing = np.empty_like(chunks[0])  # no chunk is longer than the first
    right, left = (rank + 1) % p, (rank - 1) % p
    for step in range(p - 1):
        mine, theirs = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        comm.Sendrecv(mine, right, recvbuf=landing[: len(theirs)], source=left)
        theirs += landing[: len(theirs)]
    for step in range(p - 1):
        mine, theirs = chunks[(rank + 1 - step) % p], chunks[(rank - step) % p]
        comm.Sendrecv(mine, right, recvbuf=theirs, source=left)
    # end of solution
