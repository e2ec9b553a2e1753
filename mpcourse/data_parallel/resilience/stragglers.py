"""Which ranks are slow, from how long each of them computes."""

from collections.abc import Sequence

import numpy as np


def stragglers(seconds: Sequence[Sequence[float]], slower: float = 1.05) -> dict[int, float]:
    """Return the slow ranks, and how many times as long they compute as most others, the slowest first.

    seconds: for each step, the seconds that each rank computes until it begins to wait for the others. The time of a
    whole step says nothing, because it is the same on all ranks.
    slower: a rank is slow if its median is more than so many times the median of all ranks' medians, above 1.

    Medians, because a single slow step, such as one that writes a checkpoint, is no straggler.
    Raises ValueError for steps with different numbers of ranks, or for none.
    """
    if not seconds or len({len(step) for step in seconds}) > 1 or not len(seconds[0]):
        raise ValueError("there is a step or more, and each has the seconds of the same ranks")
    if slower <= 1:
        raise ValueError(f"slower={slower}: a slow rank takes more than once the usual time")
    of_ranks = np.median(np.asarray(seconds, float), axis=0)
    ratios = of_ranks / np.median(of_ranks)
    order = np.argsort(-ratios, kind="stable")
    return {int(rank): float(ratios[rank]) for rank in order if ratios[rank] > slower}
