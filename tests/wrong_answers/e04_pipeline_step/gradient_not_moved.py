# says: A GPU computes on its own memory only. tensor.to(device) brings
# thinks: Only activations have to be moved; autograd knows on which device a gradient is needed.
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    p, m = len(stages), len(schedule[0]) // 2
    xs, ts = x.tensor_split(m), target.tensor_split(m)
    state = {}
    finished = set()
    total = 0

    def needs(s, kind, k):
        if kind == "F":
            return set() if s == 0 else {(s - 1, "F", k)}
        return {(s, "F", k)} if s == p - 1 else {(s, "F", k), (s + 1, "B", k)}

    pending = [list(reversed(actions)) for actions in schedule]
    while any(pending):
        for s in range(p):
            if pending[s] and needs(s, *pending[s][-1]) <= finished:
                kind, k = pending[s].pop()
                if kind == "F":
                    a = xs[k] if s == 0 else state[s - 1, k][1].detach().to(devices[s]).requires_grad_()
                    b = stages[s](a)
                    if s == p - 1:
                        b = loss(b, ts[k]) * len(xs[k]) / len(x)
                        total = total + b.detach()
                    state[s, k] = (a, b)
                else:
                    a, b = state[s, k]
                    b.backward(None if s == p - 1 else state[s + 1, k][0].grad)
                finished.add((s, kind, k))
    return total
