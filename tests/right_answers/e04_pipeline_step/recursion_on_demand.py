# right: recursion: to run an action, first make its input exist on the neighbour, which runs its own list up to there
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    m = sum(kind == "F" for kind, _ in schedule[0])
    xs, ts = x.tensor_split(m), target.tensor_split(m)
    reached = [0] * len(stages)
    handed_on = {("F", -1, k): part for k, part in enumerate(xs)}
    handed_on |= {("B", last + 1, k): None for k in range(m)}
    kept = {}
    losses = []

    def need(kind, s, k):
        """What the action hands on; runs the stage's list up to it, if it has not been run."""
        while (kind, s, k) not in handed_on:
            head = schedule[s][reached[s]]
            run(s, *head)
            reached[s] += 1
        return handed_on.pop((kind, s, k))

    def run(s, kind, k):
        if kind == "F":
            given = need("F", s - 1, k)
            if s > 0:
                given = given.to(devices[s]).requires_grad_()
            result = stages[s](given)
            if s == last:
                result = loss(result, ts[k]) * (len(ts[k]) / len(target))
                losses.append(result.detach())
            kept[s, k] = given, result
            handed_on["F", s, k] = result.detach()
        else:
            gradient = need("B", s + 1, k)
            given, result = kept.pop((s, k))
            result.backward(None if gradient is None else gradient.to(devices[s]))
            handed_on["B", s, k] = given.grad

    for s in range(len(stages)):
        while reached[s] < len(schedule[s]):
            run(s, *schedule[s][reached[s]])
            reached[s] += 1
    return sum(losses)
