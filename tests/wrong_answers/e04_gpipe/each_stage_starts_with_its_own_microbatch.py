# says: Stage 1 takes its forwards in another order than stage 0: it
# thinks: So that all stages have work from the start, stage s begins with micro-batch s and goes round from there.
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        order = [(s + i) % microbatches for i in range(microbatches)]
        schedule.append([("F", k) for k in order] + [("B", k) for k in order[::-1]])
    return schedule
