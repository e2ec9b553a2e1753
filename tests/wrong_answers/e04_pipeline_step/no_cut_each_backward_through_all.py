# says: A tensor crosses without detach
# thinks: `.to` is differentiable, so the loss of a micro-batch goes back through all stages by itself, and the Bs of the earlier stages have nothing left to do.
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    out = {}
    done = set()
    position = [0] * p
    total = 0

    def ready(s, kind, k):
        if kind == "F":
            return s == 0 or ("F", s - 1, k) in done
        return ("F", s, k) in done and (s == p - 1 or ("B", s + 1, k) in done)

    while any(position[s] < len(schedule[s]) for s in range(p)):
        for s in range(p):
            while position[s] < len(schedule[s]) and ready(s, *schedule[s][position[s]]):
                kind, k = schedule[s][position[s]]
                if kind == "F":
                    given = xs[k] if s == 0 else out[s - 1, k].to(devices[s])
                    out[s, k] = stages[s](given)
                elif s == p - 1:
                    l = loss(out[s, k], targets[k]) * len(xs[k]) / len(x)
                    l.backward()
                    total = total + l.detach()
                done.add((kind, s, k))
                position[s] += 1
    return total
