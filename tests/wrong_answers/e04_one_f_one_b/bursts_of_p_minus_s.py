# says: Its input never arrives, for all wait in a circle: stage 0 is
# thinks: A stage may hold p - s micro-batches, so it runs that many forwards, then that many backwards, and again.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        size = min(microbatches, stages - s)
        actions = []
        for start in range(0, microbatches, size):
            burst = range(start, min(start + size, microbatches))
            actions.extend(("F", k) for k in burst)
            actions.extend(("B", k) for k in burst)
        schedule.append(actions)
    return schedule
