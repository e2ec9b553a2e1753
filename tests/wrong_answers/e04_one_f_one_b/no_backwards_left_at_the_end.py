# says: F4 has no backward: B4 is missing
# thinks: After the alternation the batch is through: when the last forward has had its backward next to it, the list is done.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, stages - s - 1)
        actions = [("F", k) for k in range(ahead)]
        for b, f in enumerate(range(ahead, microbatches)):
            actions.append(("F", f))
            actions.append(("B", b))
        schedule.append(actions)
    return schedule
