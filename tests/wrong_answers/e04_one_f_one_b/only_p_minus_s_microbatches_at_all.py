# says: Its gradient never arrives: B1 is not in stage 2's list
# thinks: Stage s never has more than min(m, p - s) micro-batches, so that is how many it gets in the whole batch.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        mine = min(microbatches, stages - s)
        schedule.append([("F", k) for k in range(mine)] + [("B", k) for k in range(mine)])
    return schedule
