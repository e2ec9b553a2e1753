# says: The mean of means is not the mean where some micro-batches have
# thinks: Uneven micro-batches matter for the gradients; the loss that is returned is the mean of the losses.
"""Exercise e04: one training step, by a schedule."""

import torch


def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    x_in, y_out, dy, losses = {}, {}, {}, []
    queues = [list(actions) for actions in schedule]
    while any(queues):
        for s, queue in enumerate(queues):
            if not queue:
                continue
            kind, k = queue[0]
            if kind == "F" and s > 0 and (s - 1, k) not in y_out:
                continue
            if kind == "B" and s < p - 1 and (s, k) not in dy:
                continue
            queue.pop(0)
            if kind == "F":
                x_in[s, k] = xs[k] if s == 0 else y_out[s - 1, k].detach().to(devices[s]).requires_grad_()
                y_out[s, k] = stages[s](x_in[s, k])
            elif s == p - 1:
                l = loss(y_out[s, k], targets[k])
                losses.append(l.detach())
                (l * (len(xs[k]) / len(x))).backward()
            else:
                y_out[s, k].backward(dy[s, k])
            if kind == "B" and s > 0:
                dy[s - 1, k] = x_in[s, k].grad.to(devices[s - 1])
    return torch.stack(losses).mean()
