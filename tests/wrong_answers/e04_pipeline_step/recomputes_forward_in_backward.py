# says: F0 runs more than once. Keep what the F returned: its B starts
# thinks: Forward only has to hand on the result, so I run it without gradients and build the graph in B, from the input that I kept.
"""Exercise e04: one training step, by a schedule."""

import torch


def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    inputs = {(0, k): part for k, part in enumerate(xs)}
    grads = {}
    total = 0
    done = set()
    where = [0] * p
    while len(done) < sum(map(len, schedule)):
        for s in range(p):
            if where[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][where[s]]
            if kind == "F":
                if (s, k) not in inputs:
                    continue
                with torch.no_grad():
                    y = stages[s](inputs[s, k])
                if s < p - 1:
                    inputs[s + 1, k] = y.to(devices[s + 1])
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                a = inputs[s, k].detach()
                if s > 0:
                    a.requires_grad_()
                y = stages[s](a)
                if s == p - 1:
                    l = loss(y, targets[k]) * (len(xs[k]) / len(x))
                    l.backward()
                    total = total + l.detach()
                else:
                    y.backward(grads[s, k])
                if s > 0:
                    grads[s - 1, k] = a.grad.to(devices[s - 1])
            done.add((s, kind, k))
            where[s] += 1
    return total
