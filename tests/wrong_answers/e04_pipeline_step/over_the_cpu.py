# says: Tensors go from GPU to GPU. Over the CPU they take longer, and
# thinks: Tensors go from GPU to GPU by way of the CPU, where Python can hand them over.
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    forward_mail, backward_mail, kept = {}, {}, {}
    total = 0
    for k in range(m):
        forward_mail[0, k] = xs[k]
        backward_mail[p - 1, k] = None
    cursor = [0] * p
    while any(cursor[s] < len(schedule[s]) for s in range(p)):
        for s in range(p):
            if cursor[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][cursor[s]]
            mail = forward_mail if kind == "F" else backward_mail
            if (s, k) not in mail:
                continue
            cursor[s] += 1
            got = mail.pop((s, k))
            if kind == "F":
                a = got if s == 0 else got.to(devices[s]).requires_grad_()
                y = stages[s](a)
                if s == p - 1:
                    y = loss(y, targets[k]) * (len(xs[k]) / len(x))
                    total = total + y.detach()
                else:
                    forward_mail[s + 1, k] = y.detach().cpu()
                kept[s, k] = a, y
            else:
                a, y = kept.pop((s, k))
                y.backward(got if got is None else got.to(devices[s]))
                if s > 0:
                    backward_mail[s - 1, k] = a.grad.cpu()
    return total
