# says: Each micro-batch counts in full: its loss is a mean over its
# thinks: Autograd adds up the gradients of the micro-batches, that is all it takes; only the number that I return has to be a mean.
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    m = max(k for _, k in schedule[0]) + 1
    xs = list(x.tensor_split(m))
    ts = list(target.tensor_split(m))
    ins, outs, grads = {}, {}, {}
    batch_loss = 0

    def forward(s, k):
        nonlocal batch_loss
        if s == 0:
            ins[s, k] = xs[k]
        else:
            ins[s, k] = outs[s - 1, k].detach().to(devices[s]).requires_grad_()
        outs[s, k] = stages[s](ins[s, k])
        if s == last:
            outs[s, k] = loss(outs[s, k], ts[k])
            batch_loss = batch_loss + outs[s, k].detach() * len(ts[k]) / len(target)

    def backward(s, k):
        outs[s, k].backward(grads.get((s, k)))
        if s > 0:
            grads[s - 1, k] = ins[s, k].grad.to(devices[s - 1])

    def can(s, kind, k):
        if kind == "F":
            return s == 0 or (s - 1, k) in outs
        return s == last or (s, k) in grads

    place = [0] * len(stages)
    while sum(place) < sum(len(actions) for actions in schedule):
        for s, actions in enumerate(schedule):
            if place[s] < len(actions) and can(s, *actions[place[s]]):
                kind, k = actions[place[s]]
                (forward if kind == "F" else backward)(s, k)
                place[s] += 1
    return batch_loss
