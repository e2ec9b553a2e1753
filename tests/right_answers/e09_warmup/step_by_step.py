"""Exercise e09: the learning rate of every step."""


def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    rate = base_rate if warm else peak
    drops = {m * steps_per_epoch for m in milestones}
    for now in range(step + 1):
        if now == warm:
            rate = peak
        if now in drops:
            rate *= 0.1
        if now == step:
            return rate
        if now < warm:
            rate += (peak - base_rate) / warm
