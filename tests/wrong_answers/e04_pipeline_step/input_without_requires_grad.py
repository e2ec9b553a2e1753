# says: A tensor's .grad stays None unless it required a gradient
# thinks: backward fills in .grad for whatever it passes on its way, so a detached input has its gradient afterwards.
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    p, m = len(stages), len(schedule[0]) // 2
    xs, ts = x.tensor_split(m), target.tensor_split(m)
    inputs, outputs, grads = {}, {}, {}
    todo = [iter(actions) for actions in schedule]
    head = [next(t) for t in todo]
    total = 0

    while any(h is not None for h in head):
        for s in range(p):
            if head[s] is None:
                continue
            kind, k = head[s]
            if kind == "F":
                if s > 0 and (s - 1, k) not in outputs:
                    continue
                inputs[s, k] = xs[k] if s == 0 else outputs[s - 1, k].detach().to(devices[s])
                y = stages[s](inputs[s, k])
                if s == p - 1:
                    y = loss(y, ts[k]) * (len(xs[k]) / len(x))
                    total = total + y.detach()
                outputs[s, k] = y
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                outputs[s, k].backward(grads.get((s, k)))
                if s > 0:
                    grads[s - 1, k] = inputs[s, k].grad.to(devices[s - 1])
            head[s] = next(todo[s], None)
    return total
