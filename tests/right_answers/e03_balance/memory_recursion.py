# right: Recursion with a memory that splits the stages in two halves instead of taking off one.
"""Exercise e03: where to cut."""

from functools import cache


def balance(costs, stages):
    @cache
    def best(a, b, k):
        if k == 1:
            return sum(costs[a:b]), (b - a,)
        left, answer = k // 2, None
        for m in range(a + left, b - (k - left) + 1):
            (x, sx), (y, sy) = best(a, m, left), best(m, b, k - left)
            if answer is None or max(x, y) < answer[0]:
                answer = max(x, y), sx + sy
        return answer

    return list(best(0, len(costs), stages)[1])
