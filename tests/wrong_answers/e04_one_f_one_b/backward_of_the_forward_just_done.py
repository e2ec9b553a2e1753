# says: Stage 0 takes its backwards in the order 2, 3, 4, 5, 0, 1
# thinks: In each pair the backward belongs to the forward just before it, and the ones run ahead at the start get their backwards at the end.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, stages - s - 1)
        warm_up = [("F", k) for k in range(ahead)]
        pairs = [(d, k) for k in range(ahead, microbatches) for d in "FB"]
        left = [("B", k) for k in range(ahead)]
        schedule.append(warm_up + pairs + left)
    return schedule
