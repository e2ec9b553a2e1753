"""Wrong answers to e04_pipeline_step. What a cell holds is told in tests/answers.py."""

# %% all_forwards_then_loss_on_all
# says: F2 runs where B0 is asked. Each stage runs its list from front
# thinks: The mean over the batch needs all outputs: first every forward, then one loss on the outputs put together,
#   then every backward in the order of the lists.
import torch


def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    inputs, outputs = {}, {}

    # forward
    for k, part in enumerate(x.tensor_split(m)):
        for s in range(p):
            inputs[s, k] = part if s == 0 else outputs[s - 1, k].detach().to(devices[s]).requires_grad_()
            outputs[s, k] = stages[s](inputs[s, k])

    # loss
    whole = torch.cat([outputs[p - 1, k].detach() for k in range(m)]).requires_grad_()
    batch_loss = loss(whole, target)
    batch_loss.backward()

    # backward
    grads = {(p - 1, k): g for k, g in enumerate(whole.grad.tensor_split(m))}
    for s in reversed(range(p)):
        for kind, k in schedule[s]:
            if kind == "B":
                outputs[s, k].backward(grads[s, k])
                if s > 0:
                    grads[s - 1, k] = inputs[s, k].grad.to(devices[s - 1])
    return batch_loss.detach()


# %% as_many_microbatches_as_stages
# says: as many as there are stages. Micro-batches: one for each k
# thinks: The batch is cut so that each stage has one micro-batch.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = p
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
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% backward_from_the_last_output
# says: The last stage's B starts from the loss
# thinks: The last stage's B starts from its output, as everywhere; the loss is only for the number that I return.
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
                    pass
                else:
                    arrived[s + 1, k] = out.detach().to(devices[s + 1]).requires_grad_()
                kept[s, k] = given, out
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                given, out = kept.pop((s, k))
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total + sum(loss(stages[-1](given), t) * len(t) / len(target) for t in targets).detach()


# %% backward_without_gradient
# says: is out.backward(gradient), from the gradient that
# thinks: backward() knows by itself where to start.
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
                out.backward()
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% chunk_for_tensor_split
# says: x.tensor_split(m) makes the micro-batches, and each goes
# thinks: chunk(m) cuts into m pieces, it is just the shorter name of tensor_split.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs = x.chunk(m)
    targets = target.chunk(m)
    leaves, results, grads = {}, {}, {}
    weighted = []
    position = [0] * p

    def is_ready(s):
        if position[s] == len(schedule[s]):
            return False
        kind, k = schedule[s][position[s]]
        if kind == "F":
            return s == 0 or (s - 1, k) in results
        return s == p - 1 or (s, k) in grads

    while True:
        s = next((s for s in reversed(range(p)) if is_ready(s)), None)
        if s is None:
            break
        kind, k = schedule[s][position[s]]
        position[s] += 1
        if kind == "F":
            leaves[s, k] = xs[k] if s == 0 else results[s - 1, k].detach().to(devices[s]).requires_grad_()
            results[s, k] = stages[s](leaves[s, k])
            if s == p - 1:
                results[s, k] = loss(results[s, k], targets[k]) * (xs[k].shape[0] / x.shape[0])
                weighted.append(results[s, k].detach())
        else:
            results[s, k].backward(grads.get((s, k)))
            if s > 0:
                grads[s - 1, k] = leaves[s, k].grad.to(devices[s - 1])
    return sum(weighted)


# %% clips_the_gradients
# says: each F and each B from the right tensor. No stage's gradients are right in the end
# thinks: Gradients are clipped in every training step.
import torch


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
                out.backward(grads.get((s, k)))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    for stage in stages:
        torch.nn.utils.clip_grad_norm_(stage.parameters(), 0.1)
    return total


# %% columns_in_lockstep
# says: Stage 1 is at F0, but micro-batch 0's output is not there
# thinks: The n-th actions of all stages belong to the same time step: I run the schedule column by column, forwards
#   from the first stage, backwards from the last.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    m = len(schedule[0]) // 2
    xs = x.tensor_split(m)
    targets = target.tensor_split(m)
    leaf, out, grad = {}, {}, {}
    total = 0
    for column in zip(*schedule):
        for s, (kind, k) in enumerate(column):
            if kind == "F":
                leaf[s, k] = xs[k] if s == 0 else out[s - 1, k].detach().to(devices[s]).requires_grad_()
                out[s, k] = stages[s](leaf[s, k])
                if s == last:
                    out[s, k] = loss(out[s, k], targets[k]) * len(targets[k]) / len(target)
                    total = total + out[s, k].detach()
        for s, (kind, k) in reversed(list(enumerate(column))):
            if kind == "B":
                if s == last:
                    out[s, k].backward()
                else:
                    out[s, k].backward(grad[s, k])
                if s > 0:
                    grad[s - 1, k] = leaf[s, k].grad.to(devices[s - 1])
    return total


# %% counts_actions_as_microbatches
# says: len(schedule[0]) counts forwards and backwards
# thinks: A stage's list has one entry for each micro-batch.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0])
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
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% divides_all_gradients_at_the_end
# says: Gradients that were there before the step are divided too
# thinks: I sum over the examples first and divide once at the end: every .grad by the batch size, as the loss.
import torch


def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    inputs, outputs, grads = {}, {}, {}
    summed = 0
    position = [0] * p
    while any(position[s] < len(schedule[s]) for s in range(p)):
        for s in range(p):
            if position[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][position[s]]
            if kind == "F":
                if s > 0 and (s - 1, k) not in outputs:
                    continue
                inputs[s, k] = xs[k] if s == 0 else outputs[s - 1, k].detach().to(devices[s]).requires_grad_()
                outputs[s, k] = stages[s](inputs[s, k])
                if s == p - 1:
                    outputs[s, k] = loss(outputs[s, k], targets[k]) * len(xs[k])
                    summed = summed + outputs[s, k].detach()
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                outputs[s, k].backward(grads.get((s, k)))
                if s > 0:
                    grads[s - 1, k] = inputs[s, k].grad.to(devices[s - 1])
            position[s] += 1
    with torch.no_grad():
        for stage in stages:
            for parameter in stage.parameters():
                parameter.grad /= len(x)
    return summed / len(x)


# %% eight_microbatches_always
# says: 7 or more pieces, the schedule has 1 micro-batch
# thinks: The lesson has 8 micro-batches.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = 8
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
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% first_in_first_out
# says: B0 runs where B1 is asked: the k of an action says which
# thinks: A stage's backwards come in the order of its forwards, so a queue hands them the oldest input and output,
#   and the k is not needed.
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


# %% gradient_by_stage_only
# says: Stage 0's B1 starts from the gradient of micro-batch 0
# thinks: A stage gets its gradient from the one after it, so a place for one gradient per stage is enough.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    inputs, outputs = {}, {}
    grad = [None] * p  # None on the last stage: it starts from the loss
    done = set()
    total = 0
    position = [0] * p
    while any(position[s] < len(schedule[s]) for s in range(p)):
        for s in range(p):
            while position[s] < len(schedule[s]):
                kind, k = schedule[s][position[s]]
                if kind == "F":
                    if s > 0 and ("F", s - 1, k) not in done:
                        break
                    inputs[s, k] = xs[k] if s == 0 else outputs[s - 1, k].detach().to(devices[s]).requires_grad_()
                    outputs[s, k] = stages[s](inputs[s, k])
                    if s == p - 1:
                        outputs[s, k] = loss(outputs[s, k], targets[k]) * (len(xs[k]) / len(x))
                        total = total + outputs[s, k].detach()
                else:
                    if s < p - 1 and ("B", s + 1, k) not in done:
                        break
                    outputs[s, k].backward(grad[s])
                    if s > 0:
                        grad[s - 1] = inputs[s, k].grad.to(devices[s - 1])
                done.add((kind, s, k))
                position[s] += 1
    return total


# %% gradient_not_moved
# says: A GPU computes on its own memory only. tensor.to(device) brings
# thinks: Only activations have to be moved; autograd knows on which device a gradient is needed.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p, m = len(stages), len(schedule[0]) // 2
    xs, ts = x.tensor_split(m), target.tensor_split(m)
    state = {}
    finished = set()
    total = 0

    def needs(s, kind, k):
        if kind == "F":
            return set() if s == 0 else {(s - 1, "F", k)}
        return {(s, "F", k)} if s == p - 1 else {(s, "F", k), (s + 1, "B", k)}

    pending = [list(reversed(actions)) for actions in schedule]
    while any(pending):
        for s in range(p):
            if pending[s] and needs(s, *pending[s][-1]) <= finished:
                kind, k = pending[s].pop()
                if kind == "F":
                    a = xs[k] if s == 0 else state[s - 1, k][1].detach().to(devices[s]).requires_grad_()
                    b = stages[s](a)
                    if s == p - 1:
                        b = loss(b, ts[k]) * len(xs[k]) / len(x)
                        total = total + b.detach()
                    state[s, k] = (a, b)
                else:
                    a, b = state[s, k]
                    b.backward(None if s == p - 1 else state[s + 1, k][0].grad)
                finished.add((s, kind, k))
    return total


# %% gradients_right_loss_mean_of_means
# says: The mean of means is not the mean where some micro-batches have
# thinks: Uneven micro-batches matter for the gradients; the loss that is returned is the mean of the losses.
import torch


def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    x_in, y_out, dy, losses = {}, {}, {}, []
    queues = [list(actions) for actions in schedule]
    while any(queues):
        for s, queue in enumerate(queues):
            if not queue:
                continue
            kind, k = queue[0]
            if kind == "F" and s > 0 and (s - 1, k) not in y_out:
                continue
            if kind == "B" and s < p - 1 and (s, k) not in dy:
                continue
            queue.pop(0)
            if kind == "F":
                x_in[s, k] = xs[k] if s == 0 else y_out[s - 1, k].detach().to(devices[s]).requires_grad_()
                y_out[s, k] = stages[s](x_in[s, k])
            elif s == p - 1:
                l = loss(y_out[s, k], targets[k])
                losses.append(l.detach())
                (l * (len(xs[k]) / len(x))).backward()
            else:
                y_out[s, k].backward(dy[s, k])
            if kind == "B" and s > 0:
                dy[s - 1, k] = x_in[s, k].grad.to(devices[s - 1])
    return torch.stack(losses).mean()


# %% gradients_summed_on_the_way
# says: Stage 0's B0 starts from a tensor that is not the gradient of what its F0 returned
# thinks: Gradients of micro-batches are added up, so what goes back over the cut is added up too.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    arrived, grads, kept = {}, {}, {}
    total, back = 0, [0] * p
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
                out.backward(grads.get((s, k)))
                if s > 0:
                    moved = given.grad.to(devices[s - 1])
                    back[s - 1] = back[s - 1] + moved
                    grads[s - 1, k] = back[s - 1]
            position[s] += 1
    return total


# %% input_without_requires_grad
# says: A tensor's .grad stays None unless it required a gradient
# thinks: Backward fills in .grad for whatever it passes on its way, so a detached input has its gradient afterwards.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p, m = len(stages), len(schedule[0]) // 2
    xs, ts = x.tensor_split(m), target.tensor_split(m)
    inputs, outputs, grads = {}, {}, {}
    todo = [iter(actions) for actions in schedule]
    head = [next(t) for t in todo]
    total = 0

    while any(h is not None for h in head):
        for s in range(p):
            if head[s] is None:
                continue
            kind, k = head[s]
            if kind == "F":
                if s > 0 and (s - 1, k) not in outputs:
                    continue
                inputs[s, k] = xs[k] if s == 0 else outputs[s - 1, k].detach().to(devices[s])
                y = stages[s](inputs[s, k])
                if s == p - 1:
                    y = loss(y, ts[k]) * (len(xs[k]) / len(x))
                    total = total + y.detach()
                outputs[s, k] = y
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                outputs[s, k].backward(grads.get((s, k)))
                if s > 0:
                    grads[s - 1, k] = inputs[s, k].grad.to(devices[s - 1])
            head[s] = next(todo[s], None)
    return total


# %% item_for_each_loss
# says: .item(), float(), print, `if` on a tensor and copies to the CPU
# thinks: I only need the losses' values for the mean, so I take each as a number with .item() and make a tensor of
#   the sum.
import torch


def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    inputs, outputs, grads = {}, {}, {}
    total = 0.0
    i = [0] * p
    while any(i[s] < 2 * m for s in range(p)):
        for s in range(p):
            if i[s] == 2 * m:
                continue
            kind, k = schedule[s][i[s]]
            if kind == "F" and (s == 0 or (s - 1, k) in outputs):
                inputs[s, k] = xs[k] if s == 0 else outputs[s - 1, k].detach().to(devices[s]).requires_grad_()
                outputs[s, k] = stages[s](inputs[s, k])
                if s == p - 1:
                    outputs[s, k] = loss(outputs[s, k], targets[k]) * (len(xs[k]) / len(x))
                    total += outputs[s, k].item()
                i[s] += 1
            elif kind == "B" and (s == p - 1 or (s, k) in grads):
                outputs[s, k].backward(grads.get((s, k)))
                if s > 0:
                    grads[s - 1, k] = inputs[s, k].grad.to(devices[s - 1])
                i[s] += 1
    return torch.tensor(total, device=devices[-1])


# %% keeps_everything
# says: 3 of 16 micro-batches in flight on stage 1, as 1F1B has it
# thinks: Python cleans up when the function returns, so I leave everything in the dictionaries.
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
                given = xs[k] if s == 0 else arrived[s, k]
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
                given, out = kept[s, k]
                out.backward(grads.get((s, k)))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% keeps_graphs_with_retain_graph
# says: After its B a stage needs nothing of a micro-batch
# thinks: retain_graph=True is on the safe side: nothing is freed that somebody may still need.
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
                given, out = kept[s, k]
                out.backward(grads.pop((s, k), None), retain_graph=True)
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% keeps_losses_with_their_graphs
# says: do not retain_graph, detach losses
# thinks: I collect the losses in a list and sum them at the end.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    arrived, grads, kept = {}, {}, {}
    losses = []
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
                    losses.append(out)
                else:
                    arrived[s + 1, k] = out.detach().to(devices[s + 1]).requires_grad_()
                kept[s, k] = given, out
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                given, out = kept.pop((s, k))
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return sum(losses).detach()


# %% keeps_the_detached_output
# says: B starts from what F returned, before it is detached
# thinks: What is kept is detached, so that no graph stays.
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
                given = xs[k] if s == 0 else arrived[s, k]
                out = stages[s](given)
                if s == p - 1:
                    out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                    total = total + out.detach()
                else:
                    arrived[s + 1, k] = out.detach().to(devices[s + 1]).requires_grad_()
                kept[s, k] = given, out.detach()
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                given, out = kept[s, k]
                out.backward(grads.get((s, k)))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% lockstep_by_index
# says: micro-batch 0's gradient is not there: stage 1 has not run B0
# thinks: All lists have one length, so in each turn every stage runs its next action.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    given, out = {}, {}
    total = 0
    for i in range(2 * m):
        for s in range(len(stages)):
            kind, k = schedule[s][i]
            if kind == "F":
                given[s, k] = xs[k] if s == 0 else out[s - 1, k].detach().to(devices[s]).requires_grad_()
                out[s, k] = stages[s](given[s, k])
                if s == last:
                    out[s, k] = loss(out[s, k], targets[k]) * (len(targets[k]) / len(target))
                    total = total + out[s, k].detach()
            elif s == last:
                out[s, k].backward()
            else:
                out[s, k].backward(given[s + 1, k].grad.to(devices[s]))
    return total


# %% lockstep_gradient_without_device
# says: micro-batch 0's gradient is not there: stage 1 has not run B0
# thinks: All lists have one length, so in each turn every stage runs its next action; a gradient that is not there is
#   None.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    given, out, grads = {}, {}, {}
    total = 0
    for i in range(2 * m):
        for s in range(len(stages)):
            kind, k = schedule[s][i]
            if kind == "F":
                given[s, k] = xs[k] if s == 0 else out[s - 1, k].detach().to(devices[s]).requires_grad_()
                out[s, k] = stages[s](given[s, k])
                if s == last:
                    out[s, k] = loss(out[s, k], targets[k]) * (len(targets[k]) / len(target))
                    total = total + out[s, k].detach()
            else:
                out[s, k].backward(grads.get((s, k)))
                if s > 0:
                    grads[s - 1, k] = given[s, k].grad.to(devices[s - 1])
    return total


# %% mean_of_means
# says: All micro-batches count the same, but some have one example
# thinks: The batch's loss is the mean of the micro-batches' losses, so I divide each by m, as with gradient
#   accumulation.
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


# %% no_cut_each_backward_through_all
# says: A tensor crosses without detach
# thinks: `.to` is differentiable, so the loss of a micro-batch goes back through all stages by itself, and the Bs of
#   the earlier stages have nothing left to do.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    out = {}
    done = set()
    position = [0] * p
    total = 0

    def ready(s, kind, k):
        if kind == "F":
            return s == 0 or ("F", s - 1, k) in done
        return ("F", s, k) in done and (s == p - 1 or ("B", s + 1, k) in done)

    while any(position[s] < len(schedule[s]) for s in range(p)):
        for s in range(p):
            while position[s] < len(schedule[s]) and ready(s, *schedule[s][position[s]]):
                kind, k = schedule[s][position[s]]
                if kind == "F":
                    given = xs[k] if s == 0 else out[s - 1, k].to(devices[s])
                    out[s, k] = stages[s](given)
                elif s == p - 1:
                    l = loss(out[s, k], targets[k]) * len(xs[k]) / len(x)
                    l.backward()
                    total = total + l.detach()
                done.add((kind, s, k))
                position[s] += 1
    return total


# %% not_cut_but_retain_grad
# says: crosses without detach
# thinks: retain_grad() makes the tensor between two stages keep its gradient, so that I can hand it on.
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
                if s > 0:
                    given.retain_grad()
                out = stages[s](given)
                if s == p - 1:
                    out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                    total = total + out.detach()
                else:
                    arrived[s + 1, k] = out.to(devices[s + 1])
                kept[s, k] = given, out
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                given, out = kept.pop((s, k))
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% not_cut_but_retain_graph
# says: crosses without detach
# thinks: PyTorch says to specify retain_graph=True, so I do.
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
                if s > 0:
                    given.retain_grad()
                out = stages[s](given)
                if s == p - 1:
                    out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                    total = total + out.detach()
                else:
                    arrived[s + 1, k] = out.to(devices[s + 1])
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


# %% one_input_buffer_per_stage
# says: holds other numbers: it was written over
# thinks: The input of a stage is one leaf that I make once and refill for each micro-batch, then autograd has its
#   .grad in the same place.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    buffer = [None] * p  # the input of each stage
    outputs, grads = {}, {}
    total = 0
    position = [0] * p
    while any(position[s] < len(schedule[s]) for s in range(p)):
        for s in range(p):
            if position[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][position[s]]
            if kind == "F":
                if s == 0:
                    y = stages[0](xs[k])
                elif (s - 1, k) not in outputs:
                    continue
                else:
                    arrived = outputs[s - 1, k].detach().to(devices[s])
                    if buffer[s] is None:  # micro-batch 0 is never smaller than another
                        buffer[s] = arrived.clone().requires_grad_()
                    buffer[s].data[: len(xs[k])] = arrived
                    y = stages[s](buffer[s][: len(xs[k])])
                if s == p - 1:
                    y = loss(y, targets[k]) * (len(xs[k]) / len(x))
                    total = total + y.detach()
                outputs[s, k] = y
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                outputs[s, k].backward(grads.get((s, k)))
                if s > 0:
                    grads[s - 1, k] = buffer[s].grad[: len(xs[k])].to(devices[s - 1])
            position[s] += 1
    return total


# %% one_place_per_stage
# says: With one place a stage, the next F overwrites it
# thinks: A stage keeps what its backward needs until then.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    arrived, grads, kept = {}, {}, [None] * p
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
                kept[s] = given, out
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                given, out = kept[s]
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% one_place_per_stage_retain_graph
# says: B1 runs where B0 is asked: the k of an action says which micro-batch it is of. With one place a stage
# thinks: A stage keeps what its backward needs until then, and retain_graph=True ends the error.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    arrived, grads, kept = {}, {}, [None] * p
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
                kept[s] = given, out
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                given, out = kept[s]
                out.backward(grads.pop((s, k), None), retain_graph=True)
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% optimizer_inside
# says: The step only adds to .grad. Whoever calls it updates
# thinks: I need an optimizer to make use of the gradients.
import torch


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
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    torch.optim.SGD([q for stage in stages for q in stage.parameters()], lr=0.1).step()
    return total


# %% over_the_cpu
# says: Tensors go from GPU to GPU. Over the CPU they take longer, and
# thinks: Tensors go from GPU to GPU by way of the CPU, where Python can hand them over.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    forward_mail, backward_mail, kept = {}, {}, {}
    total = 0
    for k in range(m):
        forward_mail[0, k] = xs[k]
        backward_mail[p - 1, k] = None
    cursor = [0] * p
    while any(cursor[s] < len(schedule[s]) for s in range(p)):
        for s in range(p):
            if cursor[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][cursor[s]]
            mail = forward_mail if kind == "F" else backward_mail
            if (s, k) not in mail:
                continue
            cursor[s] += 1
            got = mail.pop((s, k))
            if kind == "F":
                a = got if s == 0 else got.to(devices[s]).requires_grad_()
                y = stages[s](a)
                if s == p - 1:
                    y = loss(y, targets[k]) * (len(xs[k]) / len(x))
                    total = total + y.detach()
                else:
                    forward_mail[s + 1, k] = y.detach().cpu()
                kept[s, k] = a, y
            else:
                a, y = kept.pop((s, k))
                y.backward(got if got is None else got.to(devices[s]))
                if s > 0:
                    backward_mail[s - 1, k] = a.grad.cpu()
    return total


# %% pops_from_the_schedule
# says: The caller still needs that object: work on a copy, or build a
# thinks: The lists are queues of work: what has been run is popped from the front until all are empty.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    inputs, outputs, grads = {}, {}, {}
    total = 0
    while any(schedule):
        for s, actions in enumerate(schedule):
            if not actions:
                continue
            kind, k = actions[0]
            if kind == "F":
                if s > 0 and (s - 1, k) not in outputs:
                    continue
                inputs[s, k] = xs[k] if s == 0 else outputs[s - 1, k].detach().to(devices[s]).requires_grad_()
                outputs[s, k] = stages[s](inputs[s, k])
                if s == p - 1:
                    outputs[s, k] = loss(outputs[s, k], targets[k]) * (len(xs[k]) / len(x))
                    total = total + outputs[s, k].detach()
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                outputs[s, k].backward(grads.get((s, k)))
                if s > 0:
                    grads[s - 1, k] = inputs[s, k].grad.to(devices[s - 1])
            actions.pop(0)
    return total


# %% prints_each_loss
# says: .item(), float(), print, `if` on a tensor and copies to the CPU
# thinks: To see how training goes I print the loss of each micro-batch; print only shows a tensor and changes
#   nothing.
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
                    l = loss(out, targets[k])
                    out = l * (len(targets[k]) / len(target))
                    print(l)
                    total = total + out.detach()
                else:
                    arrived[s + 1, k] = out.detach().to(devices[s + 1]).requires_grad_()
                kept[s, k] = given, out
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                given, out = kept.pop((s, k))
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% recomputes_forward_in_backward
# says: F0 runs more than once. Keep what the F returned: its B starts
# thinks: Forward only has to hand on the result, so I run it without gradients and build the graph in B, from the
#   input that I kept.
import torch


def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    inputs = {(0, k): part for k, part in enumerate(xs)}
    grads = {}
    total = 0
    done = set()
    where = [0] * p
    while len(done) < sum(map(len, schedule)):
        for s in range(p):
            if where[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][where[s]]
            if kind == "F":
                if (s, k) not in inputs:
                    continue
                with torch.no_grad():
                    y = stages[s](inputs[s, k])
                if s < p - 1:
                    inputs[s + 1, k] = y.to(devices[s + 1])
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                a = inputs[s, k].detach()
                if s > 0:
                    a.requires_grad_()
                y = stages[s](a)
                if s == p - 1:
                    l = loss(y, targets[k]) * (len(xs[k]) / len(x))
                    l.backward()
                    total = total + l.detach()
                else:
                    y.backward(grads[s, k])
                if s > 0:
                    grads[s - 1, k] = a.grad.to(devices[s - 1])
            done.add((s, kind, k))
            where[s] += 1
    return total


# %% requires_grad_before_to
# says: The order is .detach().to(device).requires_grad_()
# thinks: The tensor asks for its gradient first and is then moved; .to keeps that.
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
                    arrived[s + 1, k] = out.detach().requires_grad_().to(devices[s + 1])
                kept[s, k] = given, out
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                given, out = kept.pop((s, k))
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% retain_graph_and_backward_twice
# says: Gradients are added twice: one backward for each micro-batch
# thinks: The last stage has a loss and an output: backward from the loss gives me the output's gradient, and then its
#   B goes from the output like everywhere; retain_graph allows it.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    inputs, outputs, grads = {}, {}, {}
    total = 0
    index = [0] * p
    while any(index[s] < len(schedule[s]) for s in range(p)):
        for s in range(p):
            if index[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][index[s]]
            if kind == "F":
                if s > 0 and (s - 1, k) not in outputs:
                    continue
                inputs[s, k] = xs[k] if s == 0 else outputs[s - 1, k].detach().to(devices[s]).requires_grad_()
                outputs[s, k] = stages[s](inputs[s, k])
                outputs[s, k].retain_grad()
            else:
                if s == p - 1:
                    l = loss(outputs[s, k], targets[k]) * (len(xs[k]) / len(x))
                    total = total + l.detach()
                    l.backward(retain_graph=True)
                    grads[s, k] = outputs[s, k].grad.clone()
                    if s > 0:
                        inputs[s, k].grad = None
                elif (s, k) not in grads:
                    continue
                outputs[s, k].backward(grads[s, k])
                if s > 0:
                    grads[s - 1, k] = inputs[s, k].grad.to(devices[s - 1])
            index[s] += 1
    return total


# %% returns_a_float
# says: float() and .item() make Python wait for the GPU. Return the
# thinks: The loss is a number, and who calls this wants to print it, so .item() once at the end.
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


# %% returns_loss_with_its_graph
# says: Its graph holds the micro-batches
# thinks: The loss is a tensor with a graph, as the one that loss(output, target) gives.
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
                    total = total + out
                else:
                    arrived[s + 1, k] = out.detach().to(devices[s + 1]).requires_grad_()
                kept[s, k] = given, out
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                given, out = kept.pop((s, k))
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% runs_whatever_is_ready
# says: F2 runs where B0 is asked. Each stage runs its list from front
# thinks: A stage should never be idle: from what is left on its list it runs everything that has its input.
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


# %% skips_a_backward_without_gradient
# says: B0 does not run
# thinks: Where the gradient is not there yet there is nothing to do: the loop comes by again.
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
                    position[s] += 1
                    continue
                given, out = kept.pop((s, k))
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% split_by_size
# says: x is cut into 4 pieces, the schedule has 3 micro-batches
# thinks: split and tensor_split do the same, one takes the size and the other the number.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.split(len(x) // m), target.split(len(x) // m)
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
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% sum_of_gradients
# says: Each micro-batch counts in full: its loss is a mean over its
# thinks: Autograd adds up the gradients of the micro-batches, that is all it takes; only the number that I return has
#   to be a mean.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    m = max(k for _, k in schedule[0]) + 1
    xs = list(x.tensor_split(m))
    ts = list(target.tensor_split(m))
    ins, outs, grads = {}, {}, {}
    batch_loss = 0

    def forward(s, k):
        nonlocal batch_loss
        if s == 0:
            ins[s, k] = xs[k]
        else:
            ins[s, k] = outs[s - 1, k].detach().to(devices[s]).requires_grad_()
        outs[s, k] = stages[s](ins[s, k])
        if s == last:
            outs[s, k] = loss(outs[s, k], ts[k])
            batch_loss = batch_loss + outs[s, k].detach() * len(ts[k]) / len(target)

    def backward(s, k):
        outs[s, k].backward(grads.get((s, k)))
        if s > 0:
            grads[s - 1, k] = ins[s, k].grad.to(devices[s - 1])

    def can(s, kind, k):
        if kind == "F":
            return s == 0 or (s - 1, k) in outs
        return s == last or (s, k) in grads

    place = [0] * len(stages)
    while sum(place) < sum(len(actions) for actions in schedule):
        for s, actions in enumerate(schedule):
            if place[s] < len(actions) and can(s, *actions[place[s]]):
                kind, k = actions[place[s]]
                (forward if kind == "F" else backward)(s, k)
                place[s] += 1
    return batch_loss


# %% target_cut_by_hand
# says: is taken against targets that are no micro-batch
# thinks: Each micro-batch has len(target) // m targets, from k * size on.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    size = len(target) // m
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
                    out = loss(out, target[k * size : k * size + len(out)]) * (len(targets[k]) / len(target))
                    total = total + out.detach()
                else:
                    arrived[s + 1, k] = out.detach().to(devices[s + 1]).requires_grad_()
                kept[s, k] = given, out
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                given, out = kept.pop((s, k))
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% targets_of_the_last_first
# says: The loss of micro-batch 0 is taken against the targets of micro-batch 1
# thinks: The last stage sees the micro-batches in the reverse order, as its backwards come.
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
                    out = loss(out, targets[m - 1 - k]) * (len(targets[k]) / len(target))
                    total = total + out.detach()
                else:
                    arrived[s + 1, k] = out.detach().to(devices[s + 1]).requires_grad_()
                kept[s, k] = given, out
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                given, out = kept.pop((s, k))
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% updates_after_each_backward
# says: The step only adds to .grad. Whoever calls it updates
# thinks: As soon as a stage has its gradient it can be updated, it need not wait for the others.
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
                out.backward(grads.pop((s, k), None))
                for q in stages[s].parameters():
                    q.data -= 0.1 * q.grad
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% updates_parameters_at_the_end
# says: The step only adds to .grad. Whoever calls it updates
# thinks: A training step ends with the update of the parameters.
import torch


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
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    with torch.no_grad():
        for stage in stages:
            for q in stage.parameters():
                q -= 0.1 * q.grad
    return total


# %% weight_at_every_stage
# says: Each stage weighs the gradient once more. It is weighed with
# thinks: Each stage has to weight its micro-batch's gradients by its share of the batch, so I scale what every
#   backward starts from.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, ts = x.tensor_split(m), target.tensor_split(m)
    share = [len(part) / len(x) for part in xs]
    saved = {}
    sent = {}
    returned = {}
    total = 0
    at = [0] * p
    while at != [len(actions) for actions in schedule]:
        for s in range(p):
            while at[s] < len(schedule[s]):
                kind, k = schedule[s][at[s]]
                if kind == "F":
                    if s > 0 and (s, k) not in sent:
                        break
                    given = xs[k] if s == 0 else sent.pop((s, k))
                    y = stages[s](given)
                    if s < p - 1:
                        sent[s + 1, k] = y.detach().to(devices[s + 1]).requires_grad_()
                    else:
                        y = loss(y, ts[k])
                        total = total + share[k] * y.detach()
                    saved[s, k] = given, y
                else:
                    if s < p - 1 and (s, k) not in returned:
                        break
                    given, y = saved.pop((s, k))
                    if s == p - 1:
                        (share[k] * y).backward()
                    else:
                        y.backward(share[k] * returned.pop((s, k)))
                    if s > 0:
                        returned[s - 1, k] = given.grad.to(devices[s - 1])
                at[s] += 1
    return total


# %% weight_of_the_first
# says: All micro-batches have the weight of one of them
# thinks: All micro-batches have one size, so I compute the weight once.
def pipeline_step(stages, devices, schedule, x, target, loss):
    p = len(stages)
    m = len(schedule[0]) // 2
    xs, targets = x.tensor_split(m), target.tensor_split(m)
    weight = len(targets[0]) / len(target)
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
                    out = loss(out, targets[k]) * weight
                    total = total + out.detach()
                else:
                    arrived[s + 1, k] = out.detach().to(devices[s + 1]).requires_grad_()
                kept[s, k] = given, out
            else:
                if s < p - 1 and (s, k) not in grads:
                    continue
                given, out = kept.pop((s, k))
                out.backward(grads.pop((s, k), None))
                if s > 0:
                    grads[s - 1, k] = given.grad.to(devices[s - 1])
            position[s] += 1
    return total


# %% zeroes_gradients_first
# says: There were gradients of a step before. They are kept: new ones
# thinks: A training step begins with zero_grad, or the last step's gradients are still in there.
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


# %% does_nothing_yet
# says: No stage got a gradient: does each B call backward?
# thinks: The signature stands. Does it run so far?
def pipeline_step(stages, devices, schedule, x, target, loss):
    return None


# %% x_requires_grad
# says: x.requires_grad
# thinks: Every stage starts from a leaf that requires a gradient, the first one too.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    x.requires_grad_()
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% x_requires_grad_set
# says: x.requires_grad
# thinks: Every stage starts from a leaf that requires a gradient, the first one too.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    x.requires_grad = True
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% x_requires_grad_and_reset
# says: cut it as it is, or detach each piece
# thinks: Every stage starts from a leaf that requires a gradient, the first one too.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    x = x.detach().requires_grad_()
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% target_requires_grad
# says: target.requires_grad
# thinks: all tensors need gradients
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    target.requires_grad_()
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% kept_by_microbatch_only
# says: micro-batch only
# thinks: the micro-batch names what is kept
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[k] = given, out
                else:
                    given, out = kept.pop(k)
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% kept_by_stage_only
# says: Look whether it is there
# thinks: the stage names what is kept
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[s] = given, out
                else:
                    given, out = kept.pop(s)
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% loss_divided_twice
# says: twice
# thinks: mean over examples and micro-batches
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target)) / count
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% eval_mode
# says: eval()
# thinks: eval() is safer while a schedule runs.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    for stage in stages:
        stage.eval()
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% state_kept
# says: keeps
# thinks: a global kept
losses = []
kept = {}
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    total = 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        losses.append(out.detach())
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return sum(losses)


# %% grad_enabled_left
# says: autograd to be on after the step
# thinks: grads off afterwards
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    import torch
    torch.set_grad_enabled(False)
    return total


# %% parameters_frozen
# says: requires_grad
# thinks: later stages only
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    for stage in stages[:-1]:
        stage.requires_grad_(False)
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% depth_first_late_copies
# says: stages hardly work at the same time
# thinks: A stage fetches what it needs when it needs it, from its neighbour.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    xs = x.tensor_split(count)
    lists = [list(actions) for actions in schedule]
    outs, grads, kept, total = {}, {}, {}, 0

    def run(s):
        nonlocal total
        kind, k = lists[s].pop(0)
        if kind == "F":
            if s == 0:
                given = xs[k]
            else:
                while (s - 1, k) not in outs:
                    run(s - 1)
                given = outs.pop((s - 1, k)).to(devices[s]).requires_grad_()
            out = stages[s](given)
            if s < last:
                outs[s, k] = out.detach()
            else:
                out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                total = total + out.detach()
            kept[s, k] = given, out
        else:
            gradient = None
            if s < last:
                while (s + 1, k) not in grads:
                    run(s + 1)
                gradient = grads.pop((s + 1, k)).to(devices[s])
            given, out = kept.pop((s, k))
            out.backward(gradient)
            if s > 0:
                grads[s, k] = given.grad

    for s in range(len(stages)):
        while lists[s]:
            run(s)
    return total


# %% depth_first_from_last
# says: stages hardly work at the same time
# thinks: A stage fetches what it needs when it needs it, from its neighbour.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    xs = x.tensor_split(count)
    lists = [list(actions) for actions in schedule]
    outs, grads, kept, total = {}, {}, {}, 0

    def run(s):
        nonlocal total
        kind, k = lists[s].pop(0)
        if kind == "F":
            if s == 0:
                given = xs[k]
            else:
                while (s - 1, k) not in outs:
                    run(s - 1)
                given = outs.pop((s - 1, k)).to(devices[s]).requires_grad_()
            out = stages[s](given)
            if s < last:
                outs[s, k] = out.detach()
            else:
                out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                total = total + out.detach()
            kept[s, k] = given, out
        else:
            gradient = None
            if s < last:
                while (s + 1, k) not in grads:
                    run(s + 1)
                gradient = grads.pop((s + 1, k)).to(devices[s])
            given, out = kept.pop((s, k))
            out.backward(gradient)
            if s > 0:
                grads[s, k] = given.grad

    for s in reversed(range(len(stages))):
        while lists[s]:
            run(s)
    return total


# %% one_thread_a_stage
# says: thread
# thinks: stages work at the same time
import queue
import threading
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    xs = x.tensor_split(count)
    forward = {(s, k): queue.Queue() for s in range(len(stages)) for k in range(count)}
    back = {(s, k): queue.Queue() for s in range(len(stages)) for k in range(count)}
    losses = []

    def work(s):
        kept = {}
        for kind, k in schedule[s]:
            if kind == "F":
                given = xs[k] if s == 0 else forward[s, k].get()
                given = given.detach().requires_grad_(s > 0)
                out = stages[s](given)
                if s < last:
                    forward[s + 1, k].put(out.detach().to(devices[s + 1]))
                else:
                    out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                    losses.append(out.detach())
                kept[k] = given, out
            else:
                given, out = kept.pop(k)
                out.backward(back[s, k].get() if s < last else None)
                if s > 0:
                    back[s - 1, k].put(given.grad.to(devices[s - 1]))

    threads = [threading.Thread(target=work, args=(s,)) for s in range(len(stages))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return sum(losses)


# %% x_detached_and_required
# says: as long as the whole batch
# thinks: first stage too
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    x = x.detach().requires_grad_()
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k))
                    if s > 0:
                        given.requires_grad_()
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% kept_by_microbatch_no_pop
# says: by stage and micro-batch
# thinks: A micro-batch is known by its number.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[k] = given, out
                else:
                    given, out = kept[k]
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% kept_in_list_by_microbatch
# says: by stage and micro-batch
# thinks: A micro-batch is known by its number.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = [None] * count, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[k] = given, out
                else:
                    given, out = kept[k]
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% share_twice
# says: twice
# thinks: weighs loss and gradient
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    (out * (len(targets[k]) / len(target)) if s == last else out).backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% generators_one_per_stage_late
# says: stages hardly work at the same time
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


# %% recursion_on_demand_late
# says: stages hardly work at the same time
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


# %% copies_the_stages
# says: was a stage copied
# thinks: The caller's modules are not to be changed.
def pipeline_step(stages, devices, schedule, x, target, loss):
    """Forward and backward of one batch; gradients are added to the parameters' .grad, and nothing else changes.

    So parameters, modes, and requires_grad of x, target and parameters stay as they are. Each F runs its stage once,
    and its B starts from what that has kept: it does not run the stage again. One tensor of each micro-batch crosses
    each cut forward, and one backward, from GPU to GPU.
    What a stage keeps of a micro-batch for its B is let go with that B: so 1F1B holds less than GPipe.

    stages: list of modules; stages[s] is on devices[s] and takes what stages[s - 1] returned, a tensor. Each has
    parameters to train. devices: list of strings, all different. schedule: schedule[s] is stage s's list of tuples
    ("F", k) and ("B", k); a legal schedule of any kind. x: (batch, ...) and target: (batch, ...), on the first device
    and on the last one. They are to be cut by .tensor_split into as many micro-batches as the schedule has: some may
    have one example more than others.
    loss(output, target): a scalar tensor, the mean over the examples that it is given.
    Returns the loss of the whole batch, the mean over all its examples: a scalar tensor on the last device, detached.
    """
    import copy

    stages = [copy.deepcopy(stage) for stage in stages]
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}  # what (kind, stage, k) is given
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% divides_by_examples
# says: it is a mean over them already
# thinks: Each micro-batch's loss is divided by the number of all examples.
def pipeline_step(stages, devices, schedule, x, target, loss):
    """Forward and backward of one batch; gradients are added to the parameters' .grad, and nothing else changes.

    So parameters, modes, and requires_grad of x, target and parameters stay as they are. Each F runs its stage once,
    and its B starts from what that has kept: it does not run the stage again. One tensor of each micro-batch crosses
    each cut forward, and one backward, from GPU to GPU.
    What a stage keeps of a micro-batch for its B is let go with that B: so 1F1B holds less than GPipe.

    stages: list of modules; stages[s] is on devices[s] and takes what stages[s - 1] returned, a tensor. Each has
    parameters to train. devices: list of strings, all different. schedule: schedule[s] is stage s's list of tuples
    ("F", k) and ("B", k); a legal schedule of any kind. x: (batch, ...) and target: (batch, ...), on the first device
    and on the last one. They are to be cut by .tensor_split into as many micro-batches as the schedule has: some may
    have one example more than others.
    loss(output, target): a scalar tensor, the mean over the examples that it is given.
    Returns the loss of the whole batch, the mean over all its examples: a scalar tensor on the last device, detached.
    """
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}  # what (kind, stage, k) is given
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * 1 / len(target)
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% one_micro_batch_too_few
# says: Micro-batches are numbered from 0
# thinks: The highest number in the list is the number of micro-batches.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = max(k for _, k in schedule[0])
    xs, targets = x.tensor_split(count), target.tensor_split(count)
    inputs, outputs, arrived, gradients, losses = {}, {}, {}, {}, []

    def forward(s, k):
        given = xs[k].detach() if s == 0 else arrived.pop((s, k)).requires_grad_()
        y = stages[s](given)
        if s == last:
            y = loss(y, targets[k]) * (len(xs[k]) / len(x))
            losses.append(y.detach())
        else:
            arrived[s + 1, k] = y.detach().to(devices[s + 1])
        inputs[s, k], outputs[s, k] = given, y

    def backward(s, k):
        outputs.pop((s, k)).backward(None if s == last else gradients.pop((s, k)))
        given = inputs.pop((s, k))
        if s > 0:
            gradients[s - 1, k] = given.grad.to(devices[s - 1])

    at = [0] * len(stages)
    while any(at[s] < len(schedule[s]) for s in range(len(stages))):
        for s in range(len(stages)):
            if at[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][at[s]]
            if kind == "F" and (s == 0 or (s, k) in arrived):
                forward(s, k)
                at[s] += 1
            elif kind == "B" and (s == last or (s, k) in gradients):
                backward(s, k)
                at[s] += 1
    return sum(losses)


# %% one_receive_buffer
# says: each micro-batch has tensors of its own
# thinks: Each stage needs one buffer for what it receives; allocating again and again costs time.
import torch


def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for _, k in schedule[0])
    xs, targets = x.tensor_split(count), target.tensor_split(count)
    inputs, outputs, arrived, gradients, losses = {}, {}, {}, {}, []
    buffers = {}

    def forward(s, k):
        if s == 0:
            given = xs[k].detach()
        else:
            sent = arrived.pop((s, k))
            if s not in buffers or buffers[s].shape != sent.shape:
                buffers[s] = torch.empty(sent.shape, dtype=sent.dtype, device=devices[s])
            buffers[s].copy_(sent)
            given = buffers[s].detach().requires_grad_()
        y = stages[s](given)
        if s == last:
            y = loss(y, targets[k]) * (len(xs[k]) / len(x))
            losses.append(y.detach())
        else:
            arrived[s + 1, k] = y.detach()
        inputs[s, k], outputs[s, k] = given, y

    def backward(s, k):
        outputs.pop((s, k)).backward(None if s == last else gradients.pop((s, k)))
        given = inputs.pop((s, k))
        if s > 0:
            gradients[s - 1, k] = given.grad.to(devices[s - 1])

    at = [0] * len(stages)
    while any(at[s] < len(schedule[s]) for s in range(len(stages))):
        for s in range(len(stages)):
            if at[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][at[s]]
            if kind == "F" and (s == 0 or (s, k) in arrived):
                forward(s, k)
                at[s] += 1
            elif kind == "B" and (s == last or (s, k) in gradients):
                backward(s, k)
                at[s] += 1
    return sum(losses)


# %% frozen_parameters_raise
# says: leaves them out by itself
# thinks: torch.autograd.grad with respect to all of the stage's parameters and its input, then add.
import torch


def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for _, k in schedule[0])
    xs, targets = x.tensor_split(count), target.tensor_split(count)
    inputs, outputs, arrived, gradients, losses = {}, {}, {}, {}, []

    def forward(s, k):
        given = xs[k].detach() if s == 0 else arrived.pop((s, k)).requires_grad_()
        y = stages[s](given)
        if s == last:
            y = loss(y, targets[k]) * (len(xs[k]) / len(x))
            losses.append(y.detach())
        else:
            arrived[s + 1, k] = y.detach().to(devices[s + 1])
        inputs[s, k], outputs[s, k] = given, y

    def backward(s, k):
        y, given = outputs.pop((s, k)), inputs.pop((s, k))
        parameters = list(stages[s].parameters())
        wanted = parameters + ([given] if s > 0 else [])
        found = torch.autograd.grad(y, wanted, None if s == last else gradients.pop((s, k)), allow_unused=True)
        for p, g in zip(parameters, found):
            if g is not None:
                p.grad = g if p.grad is None else p.grad + g
        if s > 0:
            gradients[s - 1, k] = found[-1].to(devices[s - 1])

    at = [0] * len(stages)
    while any(at[s] < len(schedule[s]) for s in range(len(stages))):
        for s in range(len(stages)):
            if at[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][at[s]]
            if kind == "F" and (s == 0 or (s, k) in arrived):
                forward(s, k)
                at[s] += 1
            elif kind == "B" and (s == last or (s, k) in gradients):
                backward(s, k)
                at[s] += 1
    return sum(losses)


# %% first_or_last_but_not_both
# says: A single stage is the first one and the last one
# thinks: There is a first stage, which takes x, a last stage, which has the loss, and those between.
def pipeline_step(stages, devices, schedule, x, target, loss):
    count = 1 + max(k for _, k in schedule[0])
    xs, targets = x.tensor_split(count), target.tensor_split(count)
    p = len(stages)
    next_device = dict(zip(devices, devices[1:]))
    arrived, kept, gradients = {}, {}, {}
    total = 0

    def run(s, kind, k):
        nonlocal total
        if kind == "F":
            if s == 0:
                given = xs[k].detach()
                y = stages[s](given)
                arrived[1, k] = y.detach().to(next_device[devices[0]])
            elif s == p - 1:
                given = arrived.pop((s, k)).requires_grad_()
                y = loss(stages[s](given), targets[k]) * (len(xs[k]) / len(x))
                total = total + y.detach()
            else:
                given = arrived.pop((s, k)).requires_grad_()
                y = stages[s](given)
                arrived[s + 1, k] = y.detach().to(next_device[devices[s]])
            kept[s, k] = given, y
        else:
            given, y = kept.pop((s, k))
            y.backward(gradients.pop((s, k)) if s < p - 1 else None)
            if s > 0:
                gradients[s - 1, k] = given.grad.to(devices[s - 1])

    at = [0] * p
    while any(a < len(actions) for a, actions in zip(at, schedule)):
        for s in range(p):
            if at[s] < len(schedule[s]):
                kind, k = schedule[s][at[s]]
                if (kind == "F" and (s == 0 or (s, k) in arrived)) or (kind == "B" and (s == p - 1 or (s, k) in gradients)):
                    run(s, kind, k)
                    at[s] += 1
    return total


# %% peak_wiped_afterwards
# says: A step does not hold less for it
# thinks: Memory is judged by the peak, and the peak can be reset.
import torch


def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for _, k in schedule[0])
    xs, targets = x.tensor_split(count), target.tensor_split(count)
    inputs, outputs, arrived, gradients, losses = {}, {}, {}, {}, []
    hoard = []

    def forward(s, k):
        given = xs[k].detach() if s == 0 else arrived.pop((s, k)).requires_grad_()
        y = stages[s](given)
        hoard.append((given, y))
        if s == last:
            y = loss(y, targets[k]) * (len(xs[k]) / len(x))
            losses.append(y.detach())
        else:
            arrived[s + 1, k] = y.detach().to(devices[s + 1])
        inputs[s, k], outputs[s, k] = given, y

    def backward(s, k):
        outputs.pop((s, k)).backward(None if s == last else gradients.pop((s, k)))
        given = inputs.pop((s, k))
        if s > 0:
            gradients[s - 1, k] = given.grad.to(devices[s - 1])

    at = [0] * len(stages)
    while any(at[s] < len(schedule[s]) for s in range(len(stages))):
        for s in range(len(stages)):
            if at[s] == len(schedule[s]):
                continue
            kind, k = schedule[s][at[s]]
            if kind == "F" and (s == 0 or (s, k) in arrived):
                forward(s, k)
                at[s] += 1
            elif kind == "B" and (s == last or (s, k) in gradients):
                backward(s, k)
                at[s] += 1
    hoard.clear()
    for device in devices:
        torch.vgpu.reset_peak_memory_stats(int(device.split(":")[1]))
    return sum(losses)


# %% decoy_forwards
# says: none of them
# thinks: The check can only see in which order the stages are called. So I call them in that order on zeros, and
#   compute the gradients in one go.
import torch


def pipeline_step(stages, devices, schedule, x, target, loss):
    y, shapes = x.detach(), []
    for stage, device in zip(stages, devices):
        y = y.to(device)
        shapes.append(y)
        y = stage(y)
    total = loss(y, target)
    total.backward()
    at = [0] * len(stages)
    with torch.no_grad():
        for turn in range(max(len(actions) for actions in schedule)):
            for s, actions in enumerate(schedule):
                if turn < len(actions) and actions[turn][0] == "F":
                    stages[s](torch.zeros_like(shapes[s][:1]))
    return total.detach()


# %% backward_at_once
# says: runs before it is this stage's turn
# thinks: The last stage can begin a backward as soon as it has its loss, so it does.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    lists[last].sort(key=lambda action: (action[1], action[0] == "B"))
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% weighed_in_backward_too
# says: To weigh by it again
# thinks: A micro-batch counts by its examples in the loss, and once more in its backward.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                        out = out * (len(targets[k]) / len(target))
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% loss_on_the_first_device
# says: Each micro-batch's loss is computed on the last device: sum them up there
# thinks: Who calls the step has given x to the first device, and looks for the loss there.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total.to(devices[0])


# %% returns_nothing
# says: Nothing came back: is the result returned?
# thinks: The gradients are in the parameters, and that is all a step is for.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept = {}
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])


# %% returns_all_losses
# says: One number for the batch: each micro-batch's loss times its share of the examples
# thinks: Each micro-batch has a loss, and who wants the mean can take it.
import torch

def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, losses = {}, []
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        losses.append(out.detach())
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return torch.stack(losses)


# %% zeroes_gradients_last
# says: It had a gradient from a step before
# thinks: A training step ends with zero_grad, so that the next one begins without gradients.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    for stage in stages:
        stage.zero_grad()
    return total


# %% gradients_right_loss_summed
# says: This is the sum of the micro-batches' mean losses
# thinks: The weight is for the gradients; the losses of the micro-batches add up to the batch's.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k])
                        total = total + out.detach()
                        out = out * (len(targets[k]) / len(target))
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% gradients_right_loss_of_the_last
# says: This is one micro-batch's loss
# thinks: The loss that came last is the loss of the step, as in any training loop.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k])
                        total = out.detach()
                        out = out * (len(targets[k]) / len(target))
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total


# %% gradients_right_loss_divided_again
# says: so are the losses that they came from. How are they summed?
# thinks: I have summed the micro-batches' losses, and the mean is the sum over their number.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total / count


# %% loss_summed_on_the_first_device
# says: Each cut is crossed by one activation and one gradient of each micro-batch, and by nothing else
# thinks: The losses are summed up where the batch came from, and the sum is brought to the last device at the end.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs and not (kind == "B" and s == last):
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach().to(devices[0])
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)) if s < last else None)
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total.to(devices[last])


# %% every_backward_waits_for_a_gradient
# says: Is there a stage whose next input never arrives
# thinks: An F runs once its input is there, and a B once its gradient is there.
def pipeline_step(stages, devices, schedule, x, target, loss):
    last = len(stages) - 1
    count = 1 + max(k for kind, k in schedule[0])
    targets = target.tensor_split(count)
    inputs = {("F", 0, k): piece for k, piece in enumerate(x.tensor_split(count))}
    kept, total = {}, 0
    lists = [list(actions) for actions in schedule]
    while any(lists):
        for s in range(len(stages)):
            while lists[s]:
                kind, k = lists[s][0]
                if (kind, s, k) not in inputs:
                    break
                lists[s].pop(0)
                if kind == "F":
                    given = inputs.pop((kind, s, k)).requires_grad_(s > 0)
                    out = stages[s](given)
                    if s < last:
                        inputs["F", s + 1, k] = out.detach().to(devices[s + 1])
                    else:
                        out = loss(out, targets[k]) * (len(targets[k]) / len(target))
                        total = total + out.detach()
                    kept[s, k] = given, out
                else:
                    given, out = kept.pop((s, k))
                    out.backward(inputs.pop((kind, s, k)))
                    if s > 0:
                        inputs["B", s - 1, k] = given.grad.to(devices[s - 1])
    return total
