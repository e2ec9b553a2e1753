# says: That is GPipe's list: nothing is let go before all forwards are
# thinks: There are m micro-batches in the pipe and stage s is s steps behind, so it runs m - s - 1 forwards ahead.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = max(0, microbatches - s - 1)
        actions = [("F", k) for k in range(ahead)]
        for k in range(ahead, microbatches):
            actions.append(("F", k))
            actions.append(("B", k - ahead))
        for k in range(microbatches - ahead, microbatches):
            actions.append(("B", k))
        schedule.append(actions)
    return schedule
