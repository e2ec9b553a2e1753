# says: F2 runs where B0 is asked. Each stage runs its list from front
# thinks: The mean over the batch needs all outputs: first every forward, then one loss on the outputs put together, then every backward in the order of the lists.
"""Exercise e04: one training step, by a schedule."""

import torch


def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    inputs, outputs = {}, {}

    # forward
    for k, part in enumerate(x.tensor_split(m)):
        for s in range(p):
            inputs[s, k] = part if s == 0 else outputs[s - 1, k].detach().to(devices[s]).requires_grad_()
            outputs[s, k] = stages[s](inputs[s, k])

    # loss
    whole = torch.cat([outputs[p - 1, k].detach() for k in range(m)]).requires_grad_()
    batch_loss = loss(whole, target)
    batch_loss.backward()

    # backward
    grads = {(p - 1, k): g for k, g in enumerate(whole.grad.tensor_split(m))}
    for s in reversed(range(p)):
        for kind, k in schedule[s]:
            if kind == "B":
                outputs[s, k].backward(grads[s, k])
                if s > 0:
                    grads[s - 1, k] = inputs[s, k].grad.to(devices[s - 1])
    return batch_loss.detach()
