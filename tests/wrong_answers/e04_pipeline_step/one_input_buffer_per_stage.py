# says: holds other numbers: it was written over
# thinks: The input of a stage is one leaf that I make once and refill for each micro-batch, then autograd has its .grad in the same place.
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    buffer = [None] * p  # the input of each stage
    outputs, grads = {}, {}
    total = 0
    position = [0] * p
    while any(position[s] < len(schedule[s]) for s in range(p)):
        for s in range(p):
            if position[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][position[s]]
            if kind == "F":
                if s == 0:
                    y = stages[0](xs[k])
                elif (s - 1, k) not in outputs:
                    continue
                else:
                    arrived = outputs[s - 1, k].detach().to(devices[s])
                    if buffer[s] is None:  # micro-batch 0 is never smaller than another
                        buffer[s] = arrived.clone().requires_grad_()
                    buffer[s].data[: len(xs[k])] = arrived
                    y = stages[s](buffer[s][: len(xs[k])])
                if s == p - 1:
                    y = loss(y, targets[k]) * (len(xs[k]) / len(x))
                    total = total + y.detach()
                outputs[s, k] = y
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                outputs[s, k].backward(grads.get((s, k)))
                if s > 0:
                    grads[s - 1, k] = buffer[s].grad[: len(xs[k])].to(devices[s - 1])
            position[s] += 1
    return total
