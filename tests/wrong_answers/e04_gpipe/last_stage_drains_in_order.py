# says: stage 1 runs F0 F1 B0 B1
# thinks: The last stage has nobody after it, so it takes its backwards as the forwards came.
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    forwards = [("F", k) for k in range(microbatches)]
    backwards = [("B", k) for k in range(microbatches)]
    schedule = [forwards + backwards[::-1] for _ in range(stages)]
    schedule[-1] = forwards + backwards
    return schedule
