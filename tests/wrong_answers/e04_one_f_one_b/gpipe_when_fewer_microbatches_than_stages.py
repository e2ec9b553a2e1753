# says: That is GPipe's list: nothing is let go before all forwards are
# thinks: With fewer micro-batches than stages the pipe never gets full and there is nothing to alternate, so it is GPipe.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    if microbatches < stages:
        everything = [("F", k) for k in range(microbatches)] + [("B", k) for k in range(microbatches)]
        return [list(everything) for _ in range(stages)]
    schedule = []
    for s in range(stages):
        ahead = stages - 1 - s
        actions = [("F", k) for k in range(ahead)]
        for k in range(microbatches - ahead):
            actions.extend([("F", k + ahead), ("B", k)])
        actions.extend(("B", k) for k in range(microbatches - ahead, microbatches))
        schedule.append(actions)
    return schedule
