"""Exercise e06: the accuracy of all ranks together.

After training, each rank has run the model on its part of the test examples. It knows how many examples it had, and
how many the model got right. What is the accuracy over all examples? It is not the mean of the ranks' accuracies: a
rank with 10 examples would count as much as a rank with 1000, and a rank without examples has no accuracy.

The check runs this on 1, 2, 3 and 4 virtual ranks, with counts of any size, and then under mpirun.

Check it with `mpcourse check e06_evaluate`. Stuck? `mpcourse hint e06_evaluate`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def evaluate(comm, correct, count):
    """Return the share of right answers among the examples of all ranks.

    comm: an mpi4py communicator. Every rank calls this function, also if there is only one.
    correct, count: ints, how many of this rank's examples the model got right, and how many examples it has. count may
    be 0 on some ranks. Both numbers may need more than 32 bits, and so may their sums.
    Returns a float between 0 and 1, the same on all ranks, as precise as a float can be. Raises ValueError on all ranks
    if no rank has any example.
    """
    # solution: sum both over all ranks, then divide
    right, examples = comm.allreduce(correct), comm.allreduce(count)  # Python's ints, which have no largest one
    if examples == 0:
        raise ValueError("no rank has any example")
    return right / examples
    # end of solution
