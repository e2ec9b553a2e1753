# right: a simulation: at each time step a stage takes what has arrived, forwards first; backwards come out as 0..m-1
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    done = {}
    lists = [[] for _ in range(stages)]
    step = 0
    while len(done) < 2 * stages * microbatches:
        now = []
        for s in range(stages):
            f = sum(1 for d, _ in lists[s] if d == "F")
            b = len(lists[s]) - f
            if f < microbatches:
                if s == 0 or done.get((s - 1, "F", f), step) < step:
                    now.append((s, "F", f))
            elif b < microbatches:
                if s == stages - 1 or done.get((s + 1, "B", b), step) < step:
                    now.append((s, "B", b))
        for s, d, k in now:
            done[s, d, k] = step
            lists[s].append((d, k))
        step += 1
    return lists
