# right: hooks on the inputs post the gradient to the stage before, a hook on the last output puts in the weight
"""Exercise e04: one training step, by a schedule."""

def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    parts = dict(enumerate(zip(x.tensor_split(m), target.tensor_split(m))))
    posted, backward_of = {}, {}
    total = []

    def post_to(s, k):
        def hook(gradient):
            posted["B", s, k] = gradient.to(devices[s])
        return hook

    def forward(s, k):
        a = parts[k][0] if s == 0 else posted.pop(("F", s, k))
        if s > 0:
            a.register_hook(post_to(s - 1, k))
        y = stages[s](a)
        if s < p - 1:
            posted["F", s + 1, k] = y.detach().to(devices[s + 1]).requires_grad_()
            backward_of[s, k] = lambda: y.backward(posted.pop(("B", s, k)))
        else:
            share = len(parts[k][1]) / len(target)
            value = loss(y, parts[k][1])
            value.register_hook(lambda one: one * share)
            total.append(value.detach() * share)
            backward_of[s, k] = value.backward

    def may(s, kind, k):
        return ("F", s, k) in posted or s == 0 if kind == "F" else ("B", s, k) in posted or s == p - 1

    remaining = [tuple(actions) for actions in schedule]
    while any(remaining):
        for s in range(p - 1, -1, -1):
            if remaining[s] and may(s, *remaining[s][0]):
                (kind, k), *rest = remaining[s]
                remaining[s] = tuple(rest)
                if kind == "F":
                    forward(s, k)
                else:
                    backward_of.pop((s, k))()
    return sum(total)
