# says: The caller still needs that object: work on a copy, or build a
# thinks: The lists are queues of work: what has been run is popped from the front until all are empty.
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    inputs, outputs, grads = {}, {}, {}
    total = 0
    while any(schedule):
        for s, actions in enumerate(schedule):
            if not actions:
                continue
            kind, k = actions[0]
            if kind == "F":
                if s > 0 and (s - 1, k) not in outputs:
                    continue
                inputs[s, k] = xs[k] if s == 0 else outputs[s - 1, k].detach().to(devices[s]).requires_grad_()
                outputs[s, k] = stages[s](inputs[s, k])
                if s == p - 1:
                    outputs[s, k] = loss(outputs[s, k], targets[k]) * (len(xs[k]) / len(x))
                    total = total + outputs[s, k].detach()
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                outputs[s, k].backward(grads.get((s, k)))
                if s > 0:
                    grads[s - 1, k] = inputs[s, k].grad.to(devices[s - 1])
            actions.pop(0)
    return total
