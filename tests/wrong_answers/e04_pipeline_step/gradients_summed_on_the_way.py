# says: Stage 0's B0 starts from a tensor that is not the gradient of what its F0 returned
# thinks: Gradients of micro-batches are added up, so what goes back over the cut is added up too.
"""Exercise e04: one training step, by a schedule."""


def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    arrived, grads, kept = {}, {}, {}
    total, back = 0, [0] * p
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
                    total = total + out.detach()
                else:
                    arrived[s + 1, k] = out.detach().to(devices[s + 1]).requires_grad_()
                kept[s, k] = given, out
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                given, out = kept.pop((s, k))
                out.backward(grads.get((s, k)))
                if s > 0:
                    moved = given.grad.to(devices[s - 1])
                    back[s - 1] = back[s - 1] + moved
                    grads[s - 1, k] = back[s - 1]
            position[s] += 1
    return total
