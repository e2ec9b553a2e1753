# says: Waiting is not written down: a stage waits by itself until its
# thinks: A stage waits while the pipe fills and drains, and the waiting has to stand in its list as None so that the columns are time steps.
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        before = [None] * s
        middle = [None] * (2 * (stages - 1 - s))
        forwards = [("F", k) for k in range(microbatches)]
        backwards = [("B", k) for k in range(microbatches - 1, -1, -1)]
        schedule.append(before + forwards + middle + backwards + before)
    return schedule
