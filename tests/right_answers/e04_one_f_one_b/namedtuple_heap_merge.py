# right: NamedTuple actions, forwards and backwards merged by heapq.merge; no warm-up, turns or cool-down written out
"""Exercise e04: one forward, one backward (1F1B)."""

import heapq
from typing import NamedTuple


class Step(NamedTuple):
    direction: str
    index: int


def one_f_one_b(stages, microbatches):
    def merged(s):
        lag = stages - s - 0.5
        forwards = ((k, Step("F", k)) for k in range(microbatches))
        backwards = ((k + lag, Step("B", k)) for k in range(microbatches))
        return [step for _, step in heapq.merge(forwards, backwards)]

    return [merged(s) for s in range(stages)]
