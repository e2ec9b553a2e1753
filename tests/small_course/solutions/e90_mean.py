"""Exercise e90: the mean of an array over all ranks."""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def mean(comm, x):
    """x: numpy array, left as it is. Returns on every rank: the mean over ranks, a new array."""
    # solution: return the mean of x over all ranks
    return comm.allreduce(x) / comm.size
    # end of solution
