# says: That is 1F1B: as fast, and it holds less. It is the next
# thinks: The last stage has nobody after it to wait for, so it can do each backward right after its forward; the others do all forwards, then all backwards.
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        if s == stages - 1:
            actions = [(what, k) for k in range(microbatches) for what in "FB"]
        else:
            actions = [("F", k) for k in range(microbatches)] + [("B", k) for k in range(microbatches)]
        schedule.append(actions)
    return schedule
