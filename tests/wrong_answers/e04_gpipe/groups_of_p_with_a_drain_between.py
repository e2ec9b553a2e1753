# says: The pipeline is filled and drained more than once: each time
# thinks: The pipe is full with p micro-batches in it, so I fill it with p of them, drain it, and fill it again with the next p.
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    actions = []
    for start in range(0, microbatches, stages):
        group = range(start, min(start + stages, microbatches))
        for k in group:
            actions.append(("F", k))
        for k in reversed(group):
            actions.append(("B", k))
    return [list(actions) for _ in range(stages)]
