"""Exercise e04: GPipe's schedule.

A batch is cut into micro-batches, and a model into stages, one for each GPU. A schedule gives each stage a list of its
actions, in order. ("F", 2) is the forward of micro-batch 2, and ("B", 2) is its backward. A stage runs its list from
the beginning to the end, and waits when an input has not arrived. An F needs the same F on the stage before. A B needs
the same B on the stage after, and the F of its micro-batch on its own stage. All stages work at the same time.

In GPipe the pipeline fills and then drains: each stage runs all forwards, and then all backwards.

`gpipe(2, 2)` -> [[("F", 0), ("F", 1), ("B", 1), ("B", 0)], [("F", 0), ("F", 1), ("B", 1), ("B", 0)]]

Check it with `mpcourse check e04_gpipe`. Stuck? `mpcourse hint e04_gpipe`.
`mpcourse schedule exercises/e04_gpipe.py:gpipe --stages 4 --microbatches 8 --save mine.svg` draws your schedule.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def gpipe(stages, microbatches):
    """Return each stage's list. With p stages and m micro-batches each idles for (p - 1) / (m + p - 1) of the time.

    stages, microbatches: ints, 1 or more.
    Returns a list or tuple of `stages` lists of tuples ("F", k) and ("B", k), k from 0 to microbatches - 1. You choose
    the order of the forwards and the order of the backwards, as long as no stage idles for longer.
    """
    # solution: return each stage's list: all forwards, then all backwards
    forwards = [("F", k) for k in range(microbatches)]
    backwards = [("B", k) for k in reversed(range(microbatches))]
    return [forwards + backwards for stage in range(stages)]
    # end of solution
