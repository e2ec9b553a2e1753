# says: The caller still needs that object
# thinks: a milestone that has passed is not needed any more.
"""Exercise e09: the learning rate of every step."""


def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    while milestones and step >= milestones[0] * steps_per_epoch:
        milestones.pop(0)
        peak *= 0.1
    return peak
