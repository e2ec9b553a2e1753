# says: After a milestone the peak is what decays
# thinks: the milestones are those of the small batch, and so are their rates.
"""Exercise e09: the learning rate of every step."""


def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    passed = sum(step >= m * steps_per_epoch for m in milestones)
    return base_rate * 0.1**passed if passed else peak
