"""Unusual right answers to e04_pipeline_step. What a cell holds is told in tests/answers.py."""

# %% autograd_grad_added_by_hand
# thinks: torch.autograd.grad for parameters and input at once, gradients added by hand; the weight enters as the
#   gradient of the loss.
import torch


def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    params = [[q for q in stage.parameters() if q.requires_grad] for stage in stages]
    leaf, top, flow = {}, {}, {}
    losses = [None] * m
    cursors = [0] * p

    def forward(s, k):
        if s > 0:
            if (s - 1, k) not in top:
                return False
            leaf[s, k] = top[s - 1, k].detach().to(devices[s]).requires_grad_()
        top[s, k] = stages[s](xs[k] if s == 0 else leaf[s, k])
        return True

    def backward(s, k):
        if s == p - 1:
            weight = len(targets[k]) / len(target)
            end = loss(top[s, k], targets[k])
            losses[k] = end.detach() * weight
            start = torch.full_like(end, weight)
        elif (s, k) in flow:
            end, start = top[s, k], flow.pop((s, k))
        else:
            return False
        wanted = params[s] + ([leaf.pop((s, k))] if s > 0 else [])
        found = torch.autograd.grad(end, wanted, start, allow_unused=True)
        for q, g in zip(params[s], found):
            if g is not None:
                q.grad = g if q.grad is None else q.grad + g
        if s > 0:
            flow[s - 1, k] = found[-1].to(devices[s - 1])
        top[s, k] = None
        return True

    while any(c < len(actions) for c, actions in zip(cursors, schedule)):
        for s, actions in enumerate(schedule):
            while cursors[s] < len(actions):
                kind, k = actions[cursors[s]]
                if not (forward if kind == "F" else backward)(s, k):
                    break
                cursors[s] += 1
    return torch.stack(losses).sum()


# %% class_with_mailboxes
# thinks: A class: each worker has mailboxes and posts to its neighbours' as soon as it has something.
class Worker:
    def __init__(self, module, device, actions):
        self.module, self.device, self.actions = module, device, actions
        self.at = 0
        self.inbox = {"F": {}, "B": {}}
        self.kept = {}
        self.before = self.after = None

    @property
    def finished(self):
        return self.at == len(self.actions)

    @property
    def can_go(self):
        if self.finished:
            return False
        kind, k = self.actions[self.at]
        return k in self.inbox[kind]

    def go(self):
        kind, k = self.actions[self.at]
        self.at += 1
        getattr(self, kind)(k, self.inbox[kind].pop(k))

    def F(self, k, given):
        result = self.module(given)
        self.kept[k] = given, result
        self.after.inbox["F"][k] = result.detach().to(self.after.device).requires_grad_()

    def B(self, k, gradient):
        given, result = self.kept.pop(k)
        result.backward(gradient)
        if self.before is not None:
            self.before.inbox["B"][k] = given.grad.to(self.before.device)


class LastWorker(Worker):
    def __init__(self, module, device, actions, targets, loss, examples):
        super().__init__(module, device, actions)
        self.targets, self.loss, self.examples, self.total = targets, loss, examples, 0
        self.inbox["B"] = dict.fromkeys(range(len(targets)))

    def F(self, k, given):
        value = self.loss(self.module(given), self.targets[k]) * (len(self.targets[k]) / self.examples)
        self.total = self.total + value.detach()
        self.kept[k] = given, value


def pipeline_step(stages, devices, schedule, x, target, loss):
    m = len(schedule[0]) // 2
    workers = [Worker(*triple) for triple in zip(stages[:-1], devices, schedule)]
    workers.append(LastWorker(stages[-1], devices[-1], schedule[-1], target.tensor_split(m), loss, len(target)))
    for one, other in zip(workers, workers[1:]):
        one.after, other.before = other, one
    workers[0].inbox["F"] = dict(enumerate(x.tensor_split(m)))
    while not all(worker.finished for worker in workers):
        for worker in workers:
            if worker.can_go:
                worker.go()
    return workers[-1].total


# %% clones_and_gradients_kept
# thinks: Clones go over the cut, and the gradients that arrived stay until the end.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    arrived, grads, kept = {}, {}, {}
    total = 0
    position = [0] * p
    while any(position[s] < len(schedule[s]) for s in range(p)):
        for s in range(p):
            if position[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][position[s]]
            if kind == "F":
                if s > 0 and (s, k) not in arrived:
                    continue
                given = xs[k] if s == 0 else arrived.pop((s, k))
                out = stages[s](given)
                if s == p - 1:
                    out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                    total = total + out.detach()
                else:
                    arrived[s + 1, k] = out.clone().detach().to(devices[s + 1]).requires_grad_()
                kept[s, k] = given, out
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                given, out = kept.pop((s, k))
                out.backward(grads.get((s, k)))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% generators_one_per_stage
# thinks: One generator a stage, which yields while its input is missing; the main loop gives each its turn until all
#   have returned.
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
                    message.requires_grad_()
                graphs[k] = message, stages[s](message)
                if s < p - 1:
                    up[s + 1][k] = graphs[k][1].detach().to(devices[s + 1])
                else:
                    down[s][k] = None
            else:
                a, y = graphs.pop(k)
                if s == p - 1:
                    share = loss(y, targets[k]) * (len(targets[k]) / len(target))
                    shares.append(share.detach())
                    share.backward()
                else:
                    y.backward(message)
                if s:
                    down[s - 1][k] = a.grad.to(devices[s - 1])

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


# %% hooks_carry_the_gradient
# thinks: Hooks on the inputs post the gradient to the stage before, a hook on the last output puts in the weight.
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


# %% inputs_outputs_and_losses_kept
# thinks: Inputs and outputs kept while in flight, detached losses until the end, and the loss printed once all is
#   given out.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    arrived, grads, inputs, outputs, losses = {}, {}, {}, {}, []
    position = [0] * p
    while any(position[s] < len(schedule[s]) for s in range(p)):
        for s in range(p):
            if position[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][position[s]]
            if kind == "F":
                if s > 0 and (s, k) not in arrived:
                    continue
                given = xs[k] if s == 0 else arrived.pop((s, k))
                out = stages[s](given)
                if s == p - 1:
                    out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                    losses.append(out.detach())
                else:
                    arrived[s + 1, k] = out.detach().to(devices[s + 1]).requires_grad_()
                inputs[s, k], outputs[s, k] = given, out
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                given, out = inputs.pop((s, k)), outputs.pop((s, k))
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    total = sum(losses)
    print(total)
    return total


# %% recursion_on_demand
# thinks: Recursion: to run an action, first make its input exist on the neighbour, which runs its own list up to
#   there.
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
                given = given.requires_grad_()
            result = stages[s](given)
            if s == last:
                result = loss(result, ts[k]) * (len(ts[k]) / len(target))
                losses.append(result.detach())
            kept[s, k] = given, result
            handed_on["F", s, k] = result.detach().to(devices[min(s + 1, last)])
        else:
            gradient = need("B", s + 1, k)
            given, result = kept.pop((s, k))
            result.backward(gradient)
            handed_on["B", s, k] = given.grad.to(devices[s - 1]) if s else None

    for s in range(len(stages)):
        while reached[s] < len(schedule[s]):
            run(s, *schedule[s][reached[s]])
            reached[s] += 1
    return sum(losses)


# %% retains_graphs_but_lets_go
# thinks: retain_graph=True, which keeps nothing here: what an F kept is popped, and the graph goes with it.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    arrived, grads, kept = {}, {}, {}
    total = 0
    position = [0] * p
    while any(position[s] < len(schedule[s]) for s in range(p)):
        for s in range(p):
            if position[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][position[s]]
            if kind == "F":
                if s > 0 and (s, k) not in arrived:
                    continue
                given = xs[k] if s == 0 else arrived.pop((s, k))
                out = stages[s](given)
                if s == p - 1:
                    out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                    total = total + out.detach()
                else:
                    arrived[s + 1, k] = out.detach().to(devices[s + 1]).requires_grad_()
                kept[s, k] = given, out
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                given, out = kept.pop((s, k))
                out.backward(grads.pop((s, k), None), retain_graph=True)
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% topological_order_copy_in_the_graph
# thinks: A topological order by graphlib first; the leaf is on the sender's device and its copy in the receiver's
#   graph, so that autograd moves the gradient.
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
