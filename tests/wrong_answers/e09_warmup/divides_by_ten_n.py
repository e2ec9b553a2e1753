# says: That is peak / (10 * n)
# thinks: each milestone divides by 10 more.
"""Exercise e09: the learning rate of every step."""


def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    passed = sum(step >= m * steps_per_epoch for m in milestones)
    return peak / (10 * passed) if passed else peak
