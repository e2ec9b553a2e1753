# says: step, or epoch, only
# thinks: milestones list the epochs with a lower rate.
"""Exercise e09: the learning rate of every step."""


def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * (0.1 if step // steps_per_epoch in milestones else 1.0)
