"""Exercise e04: one training step, by a schedule.

`pipeline_step` runs forward and backward of one batch over several devices, micro-batch by micro-batch, each stage in
the order of its list. ("F", 2) is the forward of micro-batch 2, ("B", 2) its backward, as in the exercises before.
Afterwards each parameter's .grad is what one backward of the whole batch's loss would have left there.

Autograd sees one stage at a time. An F starts from a tensor of its own, so that its B can be run later, alone: from the
gradient of what the F returned to the gradient of what it was given. You carry both over the cut.

There is one Python process, with one thread, so you decide whose turn it is. GPUs work on while Python goes on, each
through what it was given, in that order: the order of calls is what counts, that of copies too, as long as nothing
makes Python wait for a result. On the check's virtual GPUs 4 stages may take about twice as long as they need.

Check it with `mpcourse check e04_pipeline_step`. Stuck? `mpcourse hint e04_pipeline_step`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


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
    # solution: run every action once its input is there, each stage in the order of its list; return the batch's loss
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
    # end of solution
