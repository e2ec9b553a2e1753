# says: Each micro-batch comes back before the next one sets out: one
# thinks: Each micro-batch goes all the way forward and then all the way back, and only then comes the next one.
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        actions = []
        for k in range(microbatches):
            actions.append(("F", k))
            actions.append(("B", k))
        schedule.append(actions)
    return schedule
