"""Exercise e09: the learning rate of every step."""

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
