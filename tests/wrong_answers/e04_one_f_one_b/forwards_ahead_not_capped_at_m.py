# says: They are numbered from 0 to 0. No list may go on beyond the
# thinks: Stage s always runs p - s - 1 forwards ahead, that is the depth of the pipe and has nothing to do with m.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = stages - s - 1
        actions = [("F", k) for k in range(ahead)]
        done = 0
        for k in range(ahead, microbatches):
            actions += [("F", k), ("B", done)]
            done += 1
        while done < microbatches:
            actions.append(("B", done))
            done += 1
        schedule.append(actions)
    return schedule
