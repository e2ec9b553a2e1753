# says: micro-batch 0's gradient is not there: stage 1 has not run B0
# thinks: All lists have one length, so in each turn every stage runs its next action.
"""Exercise e04: one training step, by a schedule."""


def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    given, out = {}, {}
    total = 0
    for i in range(2 * m):
        for s in range(len(stages)):
            kind, k = schedule[s][i]
            if kind == "F":
                given[s, k] = xs[k] if s == 0 else out[s - 1, k].detach().to(devices[s]).requires_grad_()
                out[s, k] = stages[s](given[s, k])
                if s == last:
                    out[s, k] = loss(out[s, k], targets[k]) * (len(targets[k]) / len(target))
                    total = total + out[s, k].detach()
            elif s == last:
                out[s, k].backward()
            else:
                out[s, k].backward(given[s + 1, k].grad.to(devices[s]))
    return total
