# says: They are numbered from 0 to 1. This list counts from 1
# thinks: Micro-batches are numbered 1 to m.
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    schedule = []
    for s in range(1, stages + 1):
        forwards = [("F", k) for k in range(1, microbatches + 1)]
        backwards = [("B", k) for k in range(microbatches, 0, -1)]
        schedule.append(forwards + backwards)
    return schedule
