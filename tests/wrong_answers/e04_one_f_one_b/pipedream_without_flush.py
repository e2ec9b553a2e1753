# says: F0 has run already
# thinks: The pipe is never emptied: instead of draining, a stage goes on with the forwards of the next batch while the last backwards come in.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, stages - s - 1)
        actions = [("F", k) for k in range(ahead)]
        for k in range(microbatches):
            actions.append(("F", (k + ahead) % microbatches))
            actions.append(("B", k))
        schedule.append(actions)
    return schedule
