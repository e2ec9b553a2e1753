# says: F0 has no backward: B0 is missing
# thinks: The micro-batches are only for the forward: the loss is averaged over the batch and there is a single backward.
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        actions = [("F", k) for k in range(microbatches)]
        actions.append(("B", microbatches - 1))
        schedule.append(actions)
    return schedule
