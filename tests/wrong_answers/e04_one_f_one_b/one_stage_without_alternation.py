# says: That is GPipe's list: nothing is let go before all forwards are
# thinks: A single stage has no pipeline, there one just runs all forwards and then all backwards.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    if stages == 1:
        return [[("F", k) for k in range(microbatches)] + [("B", k) for k in range(microbatches)]]
    schedule = []
    for s in range(stages):
        n = min(microbatches, stages - s)
        actions = [("F", k) for k in range(n)]
        for k in range(microbatches):
            actions.append(("B", k))
            if n + k < microbatches:
                actions.append(("F", n + k))
        schedule.append(actions)
    return schedule
