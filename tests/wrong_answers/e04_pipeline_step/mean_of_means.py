# says: All micro-batches count the same, but some have one example
# thinks: The batch's loss is the mean of the micro-batches' losses, so I divide each by m, as with gradient accumulation.
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    n_stages = len(stages)
    m = sum(kind == "F" for kind, _ in schedule[0])
    micro_x = x.tensor_split(m)
    micro_t = target.tensor_split(m)
    acts = [{} for _ in stages]  # acts[s][k] = (input, output)
    grads = [{} for _ in stages]
    step = [0] * n_stages
    losses = []

    def try_one(s):
        kind, k = schedule[s][step[s]]
        if kind == "F":
            if s == 0:
                a = micro_x[k]
            elif k in acts[s - 1]:
                a = acts[s - 1][k][1].detach().to(devices[s]).requires_grad_()
            else:
                return False
            y = stages[s](a)
            if s == n_stages - 1:
                y = loss(y, micro_t[k]) / m
                losses.append(y.detach())
            acts[s][k] = (a, y)
        else:
            if s == n_stages - 1:
                acts[s][k][1].backward()
            elif k in grads[s]:
                acts[s][k][1].backward(grads[s][k])
            else:
                return False
            if s > 0:
                grads[s - 1][k] = acts[s][k][0].grad.to(devices[s - 1])
        step[s] += 1
        return True

    while any(step[s] < len(schedule[s]) for s in range(n_stages)):
        for s in range(n_stages):
            if step[s] < len(schedule[s]):
                try_one(s)
    return sum(losses)
