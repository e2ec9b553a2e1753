# says: Stage 0 takes its backwards in the order 0, 1, 2, 3, 5, 4
# thinks: At the end the pipe drains as in GPipe, from the newest micro-batch back to the oldest.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, stages - s - 1)
        actions = [("F", k) for k in range(ahead)]
        for k in range(ahead, microbatches):
            actions.append(("F", k))
            actions.append(("B", k - ahead))
        for k in range(microbatches - 1, microbatches - ahead - 1, -1):
            actions.append(("B", k))
        schedule.append(actions)
    return schedule
