"""Exercise e04: one training step, by a schedule.

`pipeline_step` runs forward and backward of one batch over several devices. Each stage runs the actions of its list in
order: ("F", 2) is the forward of micro-batch 2, and ("B", 2) is its backward, as in the two exercises before.
Afterwards each parameter's .grad is the same as after one backward of the whole batch's loss.

Autograd sees one stage at a time. Each F starts from a new leaf tensor, so that its B can run alone later: the B takes
the gradient of the F's output and computes the gradient of the F's input. You copy outputs and gradients over the cuts.

There is one Python process with one thread, so you decide which stage is next. Each GPU runs its operations and copies
in the order in which Python calls them, while Python goes on. So only the order of the calls counts, as long as nothing
makes Python wait for a result. On the check's virtual GPUs 4 stages may take about twice as long as they need.

Check it with `mpcourse check e04_pipeline_step`. Stuck? `mpcourse hint e04_pipeline_step`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def pipeline_step(stages, devices, schedule, x, target, loss):
    """Run forward and backward of one batch: add its gradients to the parameters' .grad, and change nothing else.

    Parameters, modes, and requires_grad of x, target and parameters stay as they are. Each F runs its stage once. Its B
    uses what autograd saved then, and does not run the stage again. For each micro-batch one tensor crosses each cut
    forward, and one crosses it backward, from GPU to GPU.
    Each B frees what its stage has kept for it. So 1F1B holds less than GPipe.

    stages: a list of modules. stages[s] is on devices[s], takes the tensor that stages[s - 1] returns, and has
    parameters to train. devices: a list of strings, all different. schedule: any legal schedule; schedule[s] is the
    list of stage s, with tuples ("F", k) and ("B", k). x: (batch, ...), on the first device. target: (batch, ...), on
    the last device. Cut x and target by .tensor_split into as many micro-batches as the schedule has. Some of them may
    have one example more than others.
    loss(output, target): returns the mean over its examples, a scalar tensor.
    Returns the loss of the whole batch, the mean over all its examples: a detached scalar tensor on the last device.
    """
    raise NotImplementedError("e04_pipeline_step: run each action when its input has arrived, each stage in its list's order; return the batch's loss")
