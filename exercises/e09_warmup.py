"""Exercise e09: the learning rate of every step, as ImageNet was trained in an hour.

Goyal et al. (2017) trained with batches of up to 8192 images, and changed one thing only: the learning rate. Three
rules make it.

- Linear scaling: k times the batch takes k times the learning rate. That is the peak.
- Warm-up: training begins with the rate of the small batch, and goes to the peak in a straight line. The rate changes
  with each step, not with each epoch.
- Step decay: at the milestones the rate is divided by 10, each time. Milestones are epochs, counted from the beginning
  of training; the warm-up is part of it.

Check it with `mpcourse check e09_warmup`. Stuck? `mpcourse hint e09_warmup`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    """The learning rate of one step, a float.

    step: 0 is the first step of training, which has base_rate exactly if there is a warm-up. steps_per_epoch: int.
    batch: examples in a batch. base_rate: the rate that is right for batches of base_batch examples.
    warmup_epochs: int, the length of the warm-up; 0: none, step 0 has the peak. The first step after it has the peak.
    milestones: a list of epochs, ascending, none of them within the warm-up. The first step of such an epoch is the
    first one with a tenth of the rate before.

    learning_rate(step, 100, 1024, 256, 0.1, 5, [30, 60]) is 0.1 in step 0, 0.25 in step 250, 0.4 from step 500 to step
    2999, and 0.04 in step 3000.
    """
    raise NotImplementedError("e09_warmup: scale the rate; in the warm-up be on the line from base_rate to it; after milestones divide by 10")
