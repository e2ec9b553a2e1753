# says: Remember their answers
# thinks: The first stage's length is tried, and the rest is the same problem again.
"""Exercise e03: where to cut."""


def balance(costs, stages):
    if stages == 1:
        return [len(costs)]
    best, answer = None, None
    for first in range(1, len(costs) - stages + 2):
        rest = balance(costs[first:], stages - 1)
        worst, start = sum(costs[:first]), first
        for size in rest:
            worst = max(worst, sum(costs[start : start + size]))
            start += size
        if best is None or worst < best:
            best, answer = worst, [first] + rest
    return answer
