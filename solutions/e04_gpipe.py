"""Exercise e04: GPipe's schedule.

A batch is cut into micro-batches, a model into stages, one a GPU. A schedule is a list for each stage: what that stage
does, in order. ("F", 2) is the forward of micro-batch 2, ("B", 2) its backward. A stage runs its list from front to
back, and waits where an input has not arrived: an F needs the same F on the stage before, a B the same B on the stage
after, and its own F. Stages work at the same time.

GPipe fills and drains: on each stage all forwards, then all backwards.

`gpipe(2, 2)` -> [[("F", 0), ("F", 1), ("B", 1), ("B", 0)], [("F", 0), ("F", 1), ("B", 1), ("B", 0)]]

Check it with `mpcourse check e04_gpipe`. Stuck? `mpcourse hint e04_gpipe`.
`mpcourse schedule exercises/e04_gpipe.py:gpipe --stages 4 --microbatches 8 --save mine.svg` draws what you wrote.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def gpipe(stages, microbatches):
    """Each stage's list. The idle share of the time is (p - 1) / (m + p - 1), for p stages and m micro-batches.

    stages, microbatches: ints, 1 or more.
    Returns a list or tuple of `stages` lists of tuples ("F", k) and ("B", k), k from 0 to microbatches - 1. In which
    order micro-batches come is up to you, forward and backward, as long as no stage waits longer than that share.
    """
    # solution: return for each stage its list: all forwards, then all backwards
    forwards = [("F", k) for k in range(microbatches)]
    backwards = [("B", k) for k in reversed(range(microbatches))]
    return [forwards + backwards for stage in range(stages)]
    # end of solution
