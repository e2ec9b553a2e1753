"""Exercise e16: the GPU that is idle for a quarter of the time.

The program below trains a classifier on one GPU. The losses are right. But the GPU computes for only three quarters
of the time, although nothing else runs on this machine.

Evidence, in evidence/e16_idle/, of 30 steps on a virtual Tesla T4: `ranks.log`, what the program printed;
`summary.txt`, what the GPU and the host did; `trace.json`, what they did in steps 24 and 25, to be opened in
https://ui.perfetto.dev. `python exercises/evidence/e16_idle/run.py` shows it again, and with FILE behind it, also
writes the trace to this file.

First name the cause in `diagnose`. Then mend `train`, so that the GPU has work all the time.

Check it with `mpcourse check e16_idle`. Stuck? `mpcourse hint e16_idle`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch
import torch.nn.functional as F


def diagnose():
    """Return the name of the cause, one of these.

    "batches": the GPU waits for the next batch, which the host has to read and copy first.
    "launches": the kernels are so short that the host cannot launch them as fast as the GPU runs them.
    "reads": the host waits for results of the GPU in each step, and launches nothing meanwhile.
    "memory": the GPU's memory is nearly full, so in each step memory is freed and reserved again.
    "log": the host writes the log, and launches nothing meanwhile.
    """
    raise NotImplementedError("e16_idle: name the cause")


def train(model, images, labels, batch, steps, rate, limit, report):
    """Train by gradient descent with momentum 0.9; return the number of clipped steps, an int.

    model: an nn.Module on a GPU, all of whose parameters get gradients.
    images, labels: the data set, on the same GPU. batch: examples of a step; it divides the size of the data set.
    steps: 1 or more. rate: the learning rate. limit: of the norm of the gradient.
    report: a function that prints a line of the log.

    A step takes the next `batch` examples; after the last ones come the first ones again. The loss of a step is the
    mean cross-entropy of its examples, before the update. The norm of its gradient is that of all parameters at once.
    A step is clipped if this norm is above the limit: all gradients are multiplied by limit / norm.

    After each 10 steps, and before the next one, report(step, loss, clipped) gets the number of steps so far, an int;
    the mean loss of the last 10 steps, a float; and the number of clipped steps so far, an int.

    A mended program does the same, but for rounding. It needs no more memory of the GPU, but for a few numbers.
    """
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, rate, momentum=0.9, foreach=False)  # foreach takes more memory
    total, clipped = 0.0, 0
    for step in range(steps):
        begin = step * batch % len(images)
        x, y = images[begin : begin + batch], labels[begin : begin + batch]
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        total += loss.item()
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(p.grad) for p in parameters]))
        if norm > limit:
            for p in parameters:
                p.grad *= limit / norm
            clipped += 1
        optimizer.step()
        if (step + 1) % 10 == 0:
            report(step + 1, total / 10, clipped)
            total = 0.0
    return clipped
