"""Exercise e06: the accuracy of all ranks together.

After training each rank has looked at its share of the test examples, and knows how many there were, and how many the
model got right. What share of all examples is right? Not the mean of the ranks' shares: a rank with 10 examples would
count as much as one with 1000, and a rank with none has no share at all.

The check runs this on 1, 2, 3 and 4 virtual ranks, with counts of any size, and then under mpirun.

Check it with `mpcourse check e06_evaluate`. Stuck? `mpcourse hint e06_evaluate`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def evaluate(comm, correct, count):
    """The share of right answers among the examples of all ranks.

    comm: an mpi4py communicator. Every rank calls this function, also the only rank of one.
    correct, count: how many of this rank's examples were answered rightly, and how many it has; ints. count may be 0 on
    some ranks. Both may be larger than 32 bits hold, and so may their sums.
    Returns a float between 0 and 1, the same on all ranks, as precise as a float is. Raises ValueError, on all ranks,
    where no rank has any example.
    """
    raise NotImplementedError("e06_evaluate: sum both over all ranks, then divide")
