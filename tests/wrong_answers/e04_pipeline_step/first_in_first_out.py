# says: B0 runs where B1 is asked: the k of an action says which
# thinks: A stage's backwards come in the order of its forwards, so a queue hands them the oldest input and output, and the k is not needed.
"""Exercise e04: one training step, by a schedule."""

from collections import deque


def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    sizes = [len(part) for part in x.tensor_split(m)]
    weights = deque(n / len(x) for n in sizes)
    arriving = [deque() for _ in range(p)]
    arriving[0].extend(x.tensor_split(m))
    targets = deque(target.tensor_split(m))
    kept = [deque() for _ in range(p)]
    gradients = [deque() for _ in range(p)]
    gradients[-1].extend([None] * m)
    position = [0] * p
    total = 0
    while any(position[s] < len(schedule[s]) for s in range(p)):
        for s in range(p):
            if position[s] == len(schedule[s]):
                continue
            kind, _ = schedule[s][position[s]]
            if kind == "F" and arriving[s]:
                a = arriving[s].popleft()
                y = stages[s](a)
                if s == p - 1:
                    y = loss(y, targets.popleft()) * weights.popleft()
                    total = total + y.detach()
                else:
                    arriving[s + 1].append(y.detach().to(devices[s + 1]).requires_grad_())
                kept[s].append((a, y))
                position[s] += 1
            elif kind == "B" and gradients[s]:
                a, y = kept[s].popleft()
                y.backward(gradients[s].popleft())
                if s > 0:
                    gradients[s - 1].append(a.grad.to(devices[s - 1]))
                position[s] += 1
    return total
