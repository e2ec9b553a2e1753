"""Exercise e04: one forward, one backward (1F1B).

GPipe keeps the activations of every micro-batch until the backwards begin. 1F1B lets go of them sooner. Each stage
runs just as many forwards as it needs to keep the stages after it busy, and then alternates: one forward, one backward.
What is left at the end are backwards. Micro-batches are taken in order, forward and backward.

With p stages and m micro-batches it is as fast as GPipe. But stage s never holds the activations of more than
min(m, p - s) micro-batches: those whose F it has run and whose B it has not.

The last of 2 stages with 3 micro-batches: [("F", 0), ("B", 0), ("F", 1), ("B", 1), ("F", 2), ("B", 2)]

Check it with `mpcourse check e04_one_f_one_b`. Stuck? `mpcourse hint e04_one_f_one_b`.
`mpcourse schedule exercises/e04_one_f_one_b.py:one_f_one_b --stages 4 --microbatches 8 --save mine.svg` draws it.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def one_f_one_b(stages, microbatches):
    """Each stage's list of actions: as fast as GPipe's, with no more in flight than min(m, p - s) on stage s.

    stages, microbatches: ints, 1 or more; there may be fewer micro-batches than stages.
    Returns a list of `stages` lists of tuples ("F", k) and ("B", k), k from 0 to microbatches - 1.
    """
    raise NotImplementedError("e04_one_f_one_b: return for each stage its list: the forwards ahead, then F and B in turns, then the backwards left")
