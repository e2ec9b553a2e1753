# says: Gradients that were there before the step are divided too
# thinks: I sum over the examples first and divide once at the end: every .grad by the batch size, as the loss.
"""Exercise e04: one training step, by a schedule."""

import torch


def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    inputs, outputs, grads = {}, {}, {}
    summed = 0
    position = [0] * p
    while any(position[s] < len(schedule[s]) for s in range(p)):
        for s in range(p):
            if position[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][position[s]]
            if kind == "F":
                if s > 0 and (s - 1, k) not in outputs:
                    continue
                inputs[s, k] = xs[k] if s == 0 else outputs[s - 1, k].detach().to(devices[s]).requires_grad_()
                outputs[s, k] = stages[s](inputs[s, k])
                if s == p - 1:
                    outputs[s, k] = loss(outputs[s, k], targets[k]) * len(xs[k])
                    summed = summed + outputs[s, k].detach()
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                outputs[s, k].backward(grads.get((s, k)))
                if s > 0:
                    grads[s - 1, k] = inputs[s, k].grad.to(devices[s - 1])
            position[s] += 1
    with torch.no_grad():
        for stage in stages:
            for parameter in stage.parameters():
                parameter.grad /= len(x)
    return summed / len(x)
