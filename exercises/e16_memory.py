"""Exercise e16: the training that runs out of memory.

The program below trains a classifier on a GPU. It notes a moving average of the loss, to stop early, and the worst
example of each step, to look at later. Its user writes: "The first 40 steps run, and then the GPU is out of memory,
although each step needs the same memory. With a batch of half the size, 81 steps run."

Evidence, in evidence/e16_memory/: `ranks.log`, what the program printed, with the error that ended it; `memory.txt`,
the GPU's memory during the run, as nvidia-smi and PyTorch show it, and the tensors in it. The GPU is a virtual one.
`python exercises/evidence/e16_memory/run.py` shows it again.

First name the cause in `diagnose`. Then mend the program, so that `train` does all that its docstring says. You may
change the two classes as you like, or do without them.

Check it with `mpcourse check e16_memory`. Stuck? `mpcourse hint e16_memory`.
"""

import torch
import torch.nn.functional as F

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def diagnose():
    """Return the name of the cause, one of these.

    "batch": the tensors of one step need more memory than the GPU has.
    "pieces": enough memory is free, but in pieces that are too small.
    "garbage": Python has not yet collected objects that refer to each other, and they hold tensors.
    "optimizer": the gradients or the optimizer's state grow from step to step.
    "results": the numbers that train returns fill the memory.
    "graph": autograd's graphs of earlier steps are kept, and they hold tensors.
    """
    raise NotImplementedError("e16_memory: name the cause")


class MovingAverage:
    """An exponential moving average. It stays on the GPU, because the host waits whenever it reads a number there."""

    def __init__(self, decay):
        self.decay, self.value, self.history = decay, None, []

    def add(self, value):
        """Add a step's mean loss, a tensor of one number."""
        old = value if self.value is None else self.value
        self.value = self.decay * old + (1 - self.decay) * value
        self.history.append(self.value)


class WorstExamples:
    """The example with the largest loss of each step: its loss, and its row of the outputs."""

    def __init__(self):
        self.losses, self.outputs = [], []

    def add(self, losses, outputs):
        """Note the worst example of a step. losses: of shape (n,). outputs: of shape (n, classes)."""
        loss, at = losses.topk(1)
        self.losses.append(loss)
        self.outputs.append(outputs[at])  # a tensor as index: a copy of one row, and no wait


def train(model, optimizer, batches, decay, target, every):
    """Train until the moving average is below `target`, or to the last batch; return what was noted in each step.

    model: an nn.Module on the GPU. It makes logits of shape (n, classes) from x, and keeps its final parameters.
    optimizer: the optimizer of its parameters.
    batches: len(batches) pairs (x, y) on the GPU. Each is made when the loop asks for it. y: int64, of shape (n,).
    decay, target: floats. every: an int, 1 or more.

    A step minimizes the cross-entropy with label smoothing. It also notes numbers, which are computed from the same
    logits: the loss of each example without label smoothing. The mean of these losses enters the moving average, which
    is decay * the average before + (1 - decay) * this mean, and begins with the mean of the first step.

    After the steps every, 2 * every and so on, the moving average is read, and training ends if it is below `target`.
    To read it, the host waits for the GPU. In all other steps the host does not wait. After each step, the GPU holds
    no more than after the second one, except for the numbers that train will return.

    Returns three things, for the steps that were made:
        averages  a list of Python floats, the moving average after each step
        losses    a float32 tensor of shape (steps,) on the CPU, the largest loss of an example in each step
        outputs   a float32 tensor of shape (steps, classes) on the CPU, this example's probabilities (softmax)
    The tensors do not require a gradient.
    """
    average, worst = MovingAverage(decay), WorstExamples()
    for step, (x, y) in enumerate(batches, start=1):
        logits = model(x)
        loss = F.cross_entropy(logits, y, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        losses = F.cross_entropy(logits, y, reduction="none")
        average.add(losses.mean())
        worst.add(losses, logits.softmax(1))
        if step % every == 0:
            now = average.value.item()
            print(f"step {step}: moving average {now:.4f}")
            if now < target:
                break
    averages = torch.stack(average.history).tolist()
    return averages, torch.cat(worst.losses).detach().cpu(), torch.cat(worst.outputs).detach().cpu()
