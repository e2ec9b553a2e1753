# right: a topological order by graphlib first; the leaf is on the sender's device and its copy in the receiver's graph, so that autograd moves the gradient
"""Exercise e04: one training step, by a schedule."""

from graphlib import TopologicalSorter


def pipeline_step(stages, devices, schedule, x, target, loss):
    p, m = len(stages), len(schedule[0]) // 2
    order = TopologicalSorter()
    for s, actions in enumerate(schedule):
        for i, (kind, k) in enumerate(actions):
            order.add((s, kind, k))
            if i > 0:
                order.add((s, kind, k), (s, *actions[i - 1]))
            neighbour = s - 1 if kind == "F" else s + 1
            if 0 <= neighbour < p:
                order.add((s, kind, k), (neighbour, kind, k))

    xs, targets = x.tensor_split(m), target.tensor_split(m)
    leaves, results = {}, {}
    total = 0
    for s, kind, k in order.static_order():
        if kind == "F":
            if s == 0:
                given = xs[k]
            else:
                leaves[s, k] = results[s - 1, k].detach().requires_grad_()
                given = leaves[s, k].to(devices[s])
            results[s, k] = stages[s](given)
            if s == p - 1:
                results[s, k] = loss(results[s, k], targets[k]).mul(xs[k].shape[0] / x.shape[0])
                total = results[s, k].detach() + total
        elif s == p - 1:
            results.pop((s, k)).backward()
        else:
            results.pop((s, k)).backward(leaves.pop((s + 1, k)).grad)
    return total
