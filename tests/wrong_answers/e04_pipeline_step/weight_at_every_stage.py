# says: Each stage weighs the gradient once more. It is weighed with
# thinks: Each stage has to weight its micro-batch's gradients by its share of the batch, so I scale what every backward starts from.
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, ts = x.tensor_split(m), target.tensor_split(m)
    share = [len(part) / len(x) for part in xs]
    saved = {}
    sent = {}
    returned = {}
    total = 0
    at = [0] * p
    while at != [len(actions) for actions in schedule]:
        for s in range(p):
            while at[s] < len(schedule[s]):
                kind, k = schedule[s][at[s]]
                if kind == "F":
                    if s > 0 and (s, k) not in sent:
                        break
                    given = xs[k] if s == 0 else sent.pop((s, k))
                    y = stages[s](given)
                    if s < p - 1:
                        sent[s + 1, k] = y.detach().to(devices[s + 1]).requires_grad_()
                    else:
                        y = loss(y, ts[k])
                        total = total + share[k] * y.detach()
                    saved[s, k] = given, y
                else:
                    if s < p - 1 and (s, k) not in returned:
                        break
                    given, y = saved.pop((s, k))
                    if s == p - 1:
                        (share[k] * y).backward()
                    else:
                        y.backward(share[k] * returned.pop((s, k)))
                    if s > 0:
                        returned[s - 1, k] = given.grad.to(devices[s - 1])
                at[s] += 1
    return total
