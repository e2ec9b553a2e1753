# says: With warmup_epochs=0 the warm-up has no steps
# thinks: min keeps the fraction at 1 after the warm-up, so no branch is needed.
"""Exercise e09: the learning rate of every step."""


def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    rate = base_rate + (peak - base_rate) * min(step / warm, 1)
    return rate * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)
