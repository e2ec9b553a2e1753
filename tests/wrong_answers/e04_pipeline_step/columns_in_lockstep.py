# says: Stage 1 is at F0, but micro-batch 0's output is not there
# thinks: The n-th actions of all stages belong to the same time step: I run the schedule column by column, forwards from the first stage, backwards from the last.
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    m = len(schedule[0]) // 2
    xs = x.tensor_split(m)
    targets = target.tensor_split(m)
    leaf, out, grad = {}, {}, {}
    total = 0
    for column in zip(*schedule):
        for s, (kind, k) in enumerate(column):
            if kind == "F":
                leaf[s, k] = xs[k] if s == 0 else out[s - 1, k].detach().to(devices[s]).requires_grad_()
                out[s, k] = stages[s](leaf[s, k])
                if s == last:
                    out[s, k] = loss(out[s, k], targets[k]) * len(targets[k]) / len(target)
                    total = total + out[s, k].detach()
        for s, (kind, k) in reversed(list(enumerate(column))):
            if kind == "B":
                if s == last:
                    out[s, k].backward()
                else:
                    out[s, k].backward(grad[s, k])
                if s > 0:
                    grad[s - 1, k] = leaf[s, k].grad.to(devices[s - 1])
    return total
