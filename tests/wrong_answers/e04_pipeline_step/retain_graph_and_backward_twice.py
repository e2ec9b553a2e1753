# says: Gradients are added twice: one backward for each micro-batch
# thinks: The last stage has a loss and an output: backward from the loss gives me the output's gradient, and then its B goes from the output like everywhere; retain_graph allows it.
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    inputs, outputs, grads = {}, {}, {}
    total = 0
    index = [0] * p
    while any(index[s] < len(schedule[s]) for s in range(p)):
        for s in range(p):
            if index[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][index[s]]
            if kind == "F":
                if s > 0 and (s - 1, k) not in outputs:
                    continue
                inputs[s, k] = xs[k] if s == 0 else outputs[s - 1, k].detach().to(devices[s]).requires_grad_()
                outputs[s, k] = stages[s](inputs[s, k])
                outputs[s, k].retain_grad()
            else:
                if s == p - 1:
                    l = loss(outputs[s, k], targets[k]) * (len(xs[k]) / len(x))
                    total = total + l.detach()
                    l.backward(retain_graph=True)
                    grads[s, k] = outputs[s, k].grad.clone()
                    if s > 0:
                        inputs[s, k].grad = None
                elif (s, k) not in grads:
                    continue
                outputs[s, k].backward(grads[s, k])
                if s > 0:
                    grads[s - 1, k] = inputs[s, k].grad.to(devices[s - 1])
            index[s] += 1
    return total
