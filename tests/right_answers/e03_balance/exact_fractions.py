# right: Computes with Fractions, so that sums of floats are exact.
"""Exercise e03: where to cut."""

from fractions import Fraction
from functools import cache


def balance(costs, stages):
    exact = [Fraction(c) for c in costs]

    @cache
    def best(start, k):
        if k == 1:
            return sum(exact[start:]), [len(exact) - start]
        total, options = 0, []
        for end in range(start + 1, len(exact) - k + 2):
            total += exact[end - 1]
            worst, sizes = best(end, k - 1)
            options.append((max(total, worst), [end - start, *sizes]))
        return min(options)

    return best(0, stages)[1]
