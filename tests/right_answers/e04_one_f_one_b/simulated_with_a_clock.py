# right: an event simulation with a clock: backward if one has arrived, else a forward if there is room for it
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    end = {}
    free = [0] * stages
    lists = [[] for _ in range(stages)]
    f, b = [0] * stages, [0] * stages
    now = 0
    while min(b) < microbatches:
        for s in range(stages):
            if free[s] > now:
                continue
            after = ("B", s + 1, b[s]) if s + 1 < stages else ("F", s, b[s])
            before = ("F", s - 1, f[s])
            if b[s] < f[s] and end.get(after, now + 1) <= now:
                action, took, cost = ("B", b[s]), b, 2
            elif f[s] < microbatches and f[s] - b[s] < stages - s and (s == 0 or end.get(before, now + 1) <= now):
                action, took, cost = ("F", f[s]), f, 1
            else:
                continue
            took[s] += 1
            free[s] = end[action[0], s, action[1]] = now + cost
            lists[s].append(action)
        now += 1
    return lists
