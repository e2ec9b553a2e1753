"""Exercise e09: the learning rate of every step."""

from fractions import Fraction


def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = Fraction(base_rate) * batch / base_batch
    epoch = Fraction(step, steps_per_epoch)
    if epoch < warmup_epochs:
        part = epoch / warmup_epochs
        return float((1 - part) * Fraction(base_rate) + part * peak)
    return float(peak / 10 ** len([m for m in milestones if m <= epoch]))
