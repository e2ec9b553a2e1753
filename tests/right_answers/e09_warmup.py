"""Unusual right answers to e09_warmup. What a cell holds is told in tests/answers.py."""

# %% exact_fractions
# thinks: It computes with exact fractions and rounds once, at the end, so the rate is as precise as a float can be.
from fractions import Fraction


def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = Fraction(base_rate) * batch / base_batch
    epoch = Fraction(step, steps_per_epoch)
    if epoch < warmup_epochs:
        part = epoch / warmup_epochs
        return float((1 - part) * Fraction(base_rate) + part * peak)
    return float(peak / 10 ** len([m for m in milestones if m <= epoch]))


# %% interp
# thinks: The line of the warm-up is drawn by np.interp, which stays at the peak after it, and milestones are compared
#   in whole epochs.
import numpy as np


def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    rate = float(np.interp(step, [0, warm], [base_rate, peak])) if warm else peak
    for milestone in milestones:
        if step // steps_per_epoch >= milestone:
            rate /= 10
    return rate


# %% step_by_step
# thinks: It goes through all steps from the first one and adds to the rate, but sets the peak exactly where the
#   warm-up ends.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    rate = base_rate if warm else peak
    drops = {m * steps_per_epoch for m in milestones}
    for now in range(step + 1):
        if now == warm:
            rate = peak
        if now in drops:
            rate *= 0.1
        if now == step:
            return rate
        if now < warm:
            rate += (peak - base_rate) / warm


# %% torch_schedulers
# thinks: LambdaLR draws the line of the warm-up, sent to the one step that is asked for, and bisect counts the
#   milestones passed.
import bisect
import torch


def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    parameter = torch.nn.Parameter(torch.zeros(1))
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    line = lambda s: base_rate + (peak - base_rate) * s / warm if s < warm else peak
    rates = [torch.optim.lr_scheduler.LambdaLR(optimizer, line)]
    rates[0].last_epoch = step - 1
    rates[0].step()
    rate = rates[0].get_last_lr()[0]
    return rate * 10.0 ** -bisect.bisect([m * steps_per_epoch for m in milestones], step)
