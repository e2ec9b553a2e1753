# says: That warm-up begins near 0
# thinks: step counts from 0, so add 1 to have no rate of 0.
"""Exercise e09: the learning rate of every step."""


def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return peak * (step + 1) / warm
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)
