# right: itertools only: the forwards left zipped with all backwards, the gaps dropped
"""Exercise e04: one forward, one backward (1F1B)."""

from itertools import chain, islice, repeat, zip_longest


def one_f_one_b(stages, microbatches):
    def stage(s):
        forwards = zip(repeat("F"), range(microbatches))
        backwards = zip(repeat("B"), range(microbatches))
        ahead = list(islice(forwards, stages - s - 1))
        turns = chain.from_iterable(zip_longest(forwards, backwards))
        return ahead + [a for a in turns if a]

    return list(map(stage, range(stages)))
