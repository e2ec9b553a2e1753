# says: Stage 0 runs 2 forwards before its first backward, and then
# thinks: I count the stages from 1 as i = s + 1, and p - i - 1 stages still have to be filled after stage i, so that many forwards run ahead.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        i = s + 1
        ahead = min(microbatches, max(0, stages - i - 1))
        f = b = 0
        actions = []
        while b < microbatches:
            if f < microbatches and f - b <= ahead:
                actions.append(("F", f))
                f += 1
            if f - b > ahead or f == microbatches:
                actions.append(("B", b))
                b += 1
        schedule.append(actions)
    return schedule
