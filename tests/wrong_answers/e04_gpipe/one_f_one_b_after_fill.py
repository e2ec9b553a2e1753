# says: That is 1F1B: as fast, and it holds less. It is the next
# thinks: Filling means each stage runs forwards until the pipe behind it is full, and from then on it can already start on backwards in between.
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        fill = min(microbatches, stages - s)
        actions = [("F", k) for k in range(fill)]
        for k in range(fill, microbatches):
            actions += [("B", k - fill), ("F", k)]
        actions += [("B", k) for k in range(microbatches - fill, microbatches)]
        schedule.append(actions)
    return schedule
