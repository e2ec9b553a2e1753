# says: F0 has run already
# thinks: I make the p empty lists with [[]] * stages and fill each of them in a loop.
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    schedule = [[]] * stages
    for s in range(stages):
        for k in range(microbatches):
            schedule[s].append(("F", k))
        for k in range(microbatches - 1, -1, -1):
            schedule[s].append(("B", k))
    return schedule
