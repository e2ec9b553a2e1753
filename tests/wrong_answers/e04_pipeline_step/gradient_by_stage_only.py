# says: Stage 0's B1 starts from the gradient of micro-batch 0
# thinks: A stage gets its gradient from the one after it, so a place for one gradient per stage is enough.
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    inputs, outputs = {}, {}
    grad = [None] * p  # None on the last stage: it starts from the loss
    done = set()
    total = 0
    position = [0] * p
    while any(position[s] < len(schedule[s]) for s in range(p)):
        for s in range(p):
            while position[s] < len(schedule[s]):
                kind, k = schedule[s][position[s]]
                if kind == "F":
                    if s > 0 and ("F", s - 1, k) not in done:
                        break
                    inputs[s, k] = xs[k] if s == 0 else outputs[s - 1, k].detach().to(devices[s]).requires_grad_()
                    outputs[s, k] = stages[s](inputs[s, k])
                    if s == p - 1:
                        outputs[s, k] = loss(outputs[s, k], targets[k]) * (len(xs[k]) / len(x))
                        total = total + outputs[s, k].detach()
                else:
                    if s < p - 1 and ("B", s + 1, k) not in done:
                        break
                    outputs[s, k].backward(grad[s])
                    if s > 0:
                        grad[s - 1] = inputs[s, k].grad.to(devices[s - 1])
                done.add((kind, s, k))
                position[s] += 1
    return total
