# right: one generator a stage, which yields while its input is missing; the main loop gives each its turn until all have returned
"""Exercise e04: one training step, by a schedule."""

from collections import deque


def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    up = [{} for _ in range(p + 1)]  # up[s][k]: what the F of stage s takes
    down = [{} for _ in range(p)]  # down[s][k]: the gradient that the B of stage s takes
    up[0].update(enumerate(x.tensor_split(m)))

    def first_to_last(s):
        graphs = {}
        for kind, k in schedule[s]:
            box = up[s] if kind == "F" else down[s]
            while k not in box:
                yield
            message = box.pop(k)
            if kind == "F":
                if s:
                    message = message.to(devices[s]).requires_grad_()
                graphs[k] = message, stages[s](message)
                up[s + 1][k] = graphs[k][1].detach()
                if s == p - 1:
                    down[s][k] = None
            else:
                a, y = graphs.pop(k)
                if s == p - 1:
                    share = loss(y, targets[k]) * (len(targets[k]) / len(target))
                    shares.append(share.detach())
                    share.backward()
                else:
                    y.backward(message.to(devices[s]))
                if s:
                    down[s - 1][k] = a.grad

    targets = target.tensor_split(m)
    shares = []
    turns = deque(first_to_last(s) for s in reversed(range(p)))
    while turns:
        worker = turns.popleft()
        try:
            next(worker)
        except StopIteration:
            continue
        turns.append(worker)
    total = shares[0]
    for share in shares[1:]:
        total = total + share
    return total
