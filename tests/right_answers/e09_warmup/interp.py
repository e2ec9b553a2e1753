"""Exercise e09: the learning rate of every step."""

import numpy as np


def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    rate = float(np.interp(step, [0, warm], [base_rate, peak])) if warm else peak
    for milestone in milestones:
        if step // steps_per_epoch >= milestone:
            rate /= 10
    return rate
