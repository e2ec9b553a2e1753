# says: One float is asked
# thinks: a schedule is a list.
"""Exercise e09: the learning rate of every step."""


def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    return [base_rate + (peak - base_rate) * s / warm if s < warm else peak for s in range(step + 1)]
