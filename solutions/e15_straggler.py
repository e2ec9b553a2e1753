"""Exercise e15: find the slow rank.

In data parallelism, all ranks wait for the slowest one in each step. So a step takes equally long on all of them, and
its time does not tell which rank is slow. Measure how long each rank computes, and compare the ranks.

The check runs this on 1 to 5 virtual ranks, and then under mpirun. It gives you a made-up step, whose clock moves only
when you call one of its functions.

Check it with `mpcourse check e15_straggler`. Stuck? `mpcourse hint e15_straggler`.
"""

from statistics import median

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def computing_seconds(compute, synchronize, exchange, clock):
    """Run one step, and return how many seconds this rank computed in it, as a float.

    compute: a function without arguments that starts forward and backward on the GPU. It returns before the GPU has
    finished, or even begun.
    synchronize: a function without arguments that returns when the GPU has finished all that was started on it.
    exchange: a function without arguments that averages the gradients over all ranks. It returns when all ranks have
    taken part. It must not begin before the GPU has finished.
    clock: a function without arguments that returns the time in seconds, such as time.perf_counter.

    This rank computes from the call of compute, with a GPU that has nothing else to do, until the GPU has finished what
    compute started. When computing_seconds is called, the GPU may still be busy with something else, such as the update
    of the step before. That does not count. Waiting for other ranks does not count either, nor does the transfer of
    gradients. Call compute once, and after it exchange once. Call synchronize and clock as often as you like.
    """
    # solution: read the clock while the GPU is idle, before it computes and after it
    synchronize()
    begin = clock()
    compute()
    synchronize()
    seconds = clock() - begin
    exchange()
    return seconds
    # end of solution


def slow_ranks(comm, seconds, slower=1.05):
    """Return the slow ranks, and how many times as long as usual each of them computes, as a dict. All ranks call it.

    comm: an mpi4py communicator.
    seconds: list of the seconds that this rank computed, ints or floats above 0, one for each step. All ranks have
    equally many, one or more. It is not changed.
    slower: a rank is slow if its ratio is more than this; 1 or more, the same on all ranks.
    Returns the same dict on all ranks, {rank: ratio}, whose keys are ints and whose values are floats. It has the slow
    ranks only, and is empty if no rank is slow.

    A rank's usual time is the median of its steps, so that a single slow step, such as one that writes a checkpoint,
    does not count. The ratio of a rank is its usual time, divided by the median of the usual times of all ranks, its
    own among them. The median of an even number of values is the mean of the two in the middle.
    """
    # solution: a median for each rank, and the median of these medians
    medians = comm.allgather(median(seconds))
    usual = median(medians)
    return {rank: own / usual for rank, own in enumerate(medians) if own / usual > slower}
    # end of solution
