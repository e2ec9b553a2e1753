"""Exercise e90: the mean of an array over all ranks."""


def mean(comm, x):
    """x: numpy array, left as it is. Returns on every rank: the mean over ranks, a new array."""
    # solution: return the mean of x over all ranks
    return comm.allreduce(x) / comm.size
    # end of solution
