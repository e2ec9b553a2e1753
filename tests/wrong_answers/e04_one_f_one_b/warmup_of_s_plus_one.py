# says: It is the other way round: the first stage needs the most, not the last
# thinks: The later a stage, the longer it waits, so stage s warms up with s + 1 forwards.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        warmup = min(s + 1, microbatches)
        row = [("F", k) for k in range(warmup)]
        for k in range(microbatches):
            row.append(("B", k))
            if warmup + k < microbatches:
                row.append(("F", warmup + k))
        schedule.append(row)
    return schedule
