# says: An action is a tuple of two: ("F", 0) is the forward of
# thinks: An action has to say on which stage it runs, so I put the stage in the tuple too.
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        row = []
        for k in range(microbatches):
            row.append(("F", s, k))
        for k in reversed(range(microbatches)):
            row.append(("B", s, k))
        schedule.append(row)
    return schedule
