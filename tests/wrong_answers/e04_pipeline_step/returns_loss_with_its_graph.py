# says: Its graph holds the micro-batches
# thinks: The loss is a tensor with a graph, as the one that loss(output, target) gives.
"""Exercise e04: one training step, by a schedule."""


def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    arrived, grads, kept = {}, {}, {}
    total = 0
    position = [0] * p
    while any(position[s] < len(schedule[s]) for s in range(p)):
        for s in range(p):
            if position[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][position[s]]
            if kind == "F":
                if s > 0 and (s, k) not in arrived:
                    continue
                given = xs[k] if s == 0 else arrived.pop((s, k))
                out = stages[s](given)
                if s == p - 1:
                    out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                    total = total + out
                else:
                    arrived[s + 1, k] = out.detach().to(devices[s + 1]).requires_grad_()
                kept[s, k] = given, out
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                given, out = kept.pop((s, k))
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total
