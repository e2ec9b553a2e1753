# says: Stage 0 runs 5 forwards before its first backward; 3 would do
# thinks: I know the number of warm-up forwards from Megatron's interleaved schedule: two for each stage that comes after.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, (stages - s - 1) * 2)
        actions = [("F", k) for k in range(ahead)]
        for k in range(ahead, microbatches):
            actions.append(("F", k))
            actions.append(("B", k - ahead))
        for k in range(microbatches - ahead, microbatches):
            actions.append(("B", k))
        schedule.append(actions)
    return schedule
