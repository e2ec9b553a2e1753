# says: F1 has run already
# thinks: GPipe throws the activations away and recomputes them, so before each backward the forward runs once more.
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        actions = [("F", k) for k in range(microbatches)]
        for k in reversed(range(microbatches)):
            actions.append(("F", k))
            actions.append(("B", k))
        schedule.append(actions)
    return schedule
