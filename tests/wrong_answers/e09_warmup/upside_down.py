# says: The ratio is upside down
# thinks: more examples a step, so smaller steps.
"""Exercise e09: the learning rate of every step."""


def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * base_batch / batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)
