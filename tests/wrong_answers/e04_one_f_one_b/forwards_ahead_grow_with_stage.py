# says: It is the other way round: the first stage needs the most, not the last
# thinks: Stage s comes later in the pipe, so it has s stages before it to be filled and runs s forwards ahead.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, s)
        actions = [("F", k) for k in range(ahead)]
        for k in range(ahead, microbatches):
            actions.append(("F", k))
            actions.append(("B", k - ahead))
        for k in range(microbatches - ahead, microbatches):
            actions.append(("B", k))
        schedule.append(actions)
    return schedule
