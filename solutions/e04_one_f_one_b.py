"""Exercise e04: one forward, one backward (1F1B).

GPipe keeps the activations of all micro-batches until the backwards begin. 1F1B frees them sooner. Each stage first
runs just as many forwards as keep the stages after it busy. Then it alternates: one forward, one backward. At the end
it runs the remaining backwards. Forwards and backwards both take the micro-batches in order.

With p stages and m micro-batches, 1F1B is as fast as GPipe. But stage s never has more than min(m, p - s) micro-batches
in flight: micro-batches whose F it has run and whose B it has not. It holds only their activations.

The last of 2 stages with 3 micro-batches: [("F", 0), ("B", 0), ("F", 1), ("B", 1), ("F", 2), ("B", 2)]

Check it with `mpcourse check e04_one_f_one_b`. Stuck? `mpcourse hint e04_one_f_one_b`.
`mpcourse schedule exercises/e04_one_f_one_b.py:one_f_one_b --stages 4 --microbatches 8 --save mine.svg` draws it.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def one_f_one_b(stages, microbatches):
    """Return each stage's list: as fast as GPipe, with at most min(m, p - s) micro-batches in flight on stage s.

    stages, microbatches: ints, 1 or more; there may be fewer micro-batches than stages.
    Returns a list of `stages` lists of tuples ("F", k) and ("B", k), k from 0 to microbatches - 1.
    """
    # solution: return each stage's list: the forwards ahead, then F and B in turn, then the remaining backwards
    schedule = []
    for stage in range(stages):
        ahead = min(microbatches, stages - 1 - stage)
        actions = [("F", k) for k in range(ahead)]
        for k in range(ahead, microbatches):
            actions += [("F", k), ("B", k - ahead)]
        actions += [("B", k) for k in range(microbatches - ahead, microbatches)]
        schedule.append(actions)
    return schedule
    # end of solution
