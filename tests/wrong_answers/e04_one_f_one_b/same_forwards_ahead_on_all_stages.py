# says: stage 1 runs F0 F1 F2 B0
# thinks: The pipe takes p - 1 steps to fill, so every stage runs p - 1 forwards first and then alternates.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    ahead = min(stages - 1, microbatches)
    actions = [("F", k) for k in range(ahead)]
    for k in range(microbatches - ahead):
        actions += [("F", ahead + k), ("B", k)]
    actions += [("B", k) for k in range(microbatches - ahead, microbatches)]
    return [actions[:] for _ in range(stages)]
