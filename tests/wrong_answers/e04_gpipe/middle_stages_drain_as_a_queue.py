# says: Stage 1 takes its backwards in another order than stage 0: it
# thinks: The first and the last stage turn the order round, the stages in between just pass things on first in, first out.
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        order = list(range(microbatches))
        actions = [("F", k) for k in order]
        if s == 0 or s == stages - 1:
            order.reverse()
        actions += [("B", k) for k in order]
        schedule.append(actions)
    return schedule
