# says: float() and .item() make Python wait for the GPU. Return the
# thinks: The loss is a number, and who calls this wants to print it, so .item() once at the end.
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    given, made, grads = {}, {}, {}
    running = 0

    def run(s, kind, k):
        nonlocal running
        if kind == "F":
            given[s, k] = xs[k] if s == 0 else made[s - 1, k].detach().to(devices[s]).requires_grad_()
            made[s, k] = stages[s](given[s, k])
        elif s == p - 1:
            l = loss(made[s, k], targets[k]) * (len(xs[k]) / len(x))
            running = running + l.detach()
            l.backward()
        else:
            made[s, k].backward(grads[s, k])
        if kind == "B" and s > 0:
            grads[s - 1, k] = given[s, k].grad.to(devices[s - 1])

    position = [0] * p
    busy = True
    while busy:
        busy = False
        for s in range(p):
            if position[s] < len(schedule[s]):
                kind, k = schedule[s][position[s]]
                if (s == 0 or (s - 1, k) in made) if kind == "F" else (s == p - 1 or (s, k) in grads):
                    run(s, kind, k)
                    position[s] += 1
                    busy = True
    return running.item()
