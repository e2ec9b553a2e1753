# says: The gradient before its forward: F0 of this stage has not run
# thinks: After p - s - 1 forwards the stage is full, so in each pair it must first let go of one with a B and then take a new F.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, stages - s - 1)
        actions = [("F", k) for k in range(ahead)]
        for k in range(ahead, microbatches):
            actions.append(("B", k - ahead))
            actions.append(("F", k))
        for k in range(microbatches - ahead, microbatches):
            actions.append(("B", k))
        schedule.append(actions)
    return schedule
