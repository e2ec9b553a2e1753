"""Exercise e09: the learning rate of every step, as in training on ImageNet in an hour.

Goyal et al. (2017) trained with batches of up to 8192 images, and changed one thing only: the learning rate. It follows
three rules.

- Linear scaling: if the batch is k times as large, the learning rate is k times as large, too. This rate is the peak.
- Warm-up: training begins with the rate of the small batch, and the rate grows to the peak in a straight line. It
  changes with each step, not with each epoch.
- Step decay: at each milestone the rate is divided by 10. Milestones are epochs, counted from the beginning of
  training. The warm-up counts, too.

Check it with `mpcourse check e09_warmup`. Stuck? `mpcourse hint e09_warmup`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    """Return the learning rate of one step, a float.

    step: the step's number, 0 for the first. If there is a warm-up, step 0 has exactly base_rate. steps_per_epoch: int.
    batch: the number of examples in a batch. base_rate: the right rate for batches of base_batch examples.
    warmup_epochs: int, the length of the warm-up. The first step after it has the peak. If warmup_epochs is 0, this
    is step 0.
    milestones: an ascending list of epochs, none of them within the warm-up. From the first step of such an
    epoch on, the rate is a tenth of the rate before.

    learning_rate(step, 100, 1024, 256, 0.1, 5, [30, 60]) is 0.1 in step 0, 0.25 in step 250, 0.4 from step 500 to step
    2999, and 0.04 in step 3000.
    """
    # solution: scale the rate; in the warm-up go from base_rate to it linearly; at each milestone divide by 10
    peak = base_rate * batch / base_batch
    warmup_steps = warmup_epochs * steps_per_epoch
    if step < warmup_steps:
        return base_rate + (peak - base_rate) * step / warmup_steps
    passed = sum(step >= epoch * steps_per_epoch for epoch in milestones)
    return peak * 0.1**passed
    # end of solution
