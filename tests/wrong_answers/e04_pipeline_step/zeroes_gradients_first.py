# says: There were gradients of a step before. They are kept: new ones
# thinks: A training step begins with zero_grad, or the last step's gradients are still in there.
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    for stage in stages:
        stage.zero_grad()

    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    graph = {}
    upstream = {}
    losses = []
    position = [0] * p

    progress = True
    while progress:
        progress = False
        for s in range(p):
            for kind, k in schedule[s][position[s]:]:
                if kind == "F":
                    if s == 0:
                        a = xs[k]
                    elif (s - 1, k) in graph:
                        a = graph[s - 1, k][1].detach().to(devices[s]).requires_grad_()
                    else:
                        break
                    y = stages[s](a)
                    if s == p - 1:
                        y = loss(y, targets[k]) * (len(xs[k]) / len(x))
                        losses.append(y.detach())
                        upstream[s, k] = None
                    graph[s, k] = (a, y)
                else:
                    if (s, k) not in upstream:
                        break
                    a, y = graph[s, k]
                    y.backward(upstream[s, k])
                    if s > 0:
                        upstream[s - 1, k] = a.grad.to(devices[s - 1])
                position[s] += 1
                progress = True
    return sum(losses)
