# says: x.tensor_split(m) makes the micro-batches, and each goes
# thinks: chunk(m) cuts into m pieces, it is just the shorter name of tensor_split.
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs = x.chunk(m)
    targets = target.chunk(m)
    leaves, results, grads = {}, {}, {}
    weighted = []
    position = [0] * p

    def is_ready(s):
        if position[s] == len(schedule[s]):
            return False
        kind, k = schedule[s][position[s]]
        if kind == "F":
            return s == 0 or (s - 1, k) in results
        return s == p - 1 or (s, k) in grads

    while True:
        s = next((s for s in reversed(range(p)) if is_ready(s)), None)
        if s is None:
            break
        kind, k = schedule[s][position[s]]
        position[s] += 1
        if kind == "F":
            leaves[s, k] = xs[k] if s == 0 else results[s - 1, k].detach().to(devices[s]).requires_grad_()
            results[s, k] = stages[s](leaves[s, k])
            if s == p - 1:
                results[s, k] = loss(results[s, k], targets[k]) * (xs[k].shape[0] / x.shape[0])
                weighted.append(results[s, k].detach())
        else:
            results[s, k].backward(grads.get((s, k)))
            if s > 0:
                grads[s - 1, k] = leaves[s, k].grad.to(devices[s - 1])
    return sum(weighted)
