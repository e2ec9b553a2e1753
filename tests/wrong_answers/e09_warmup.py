"""Wrong answers to e09_warmup. What a cell holds is told in tests/answers.py."""

# %% a_fifth_at_each_milestone
# says: After the warm-up: the peak
# thinks: Each milestone takes a fifth of the rate, as in other papers.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * 0.2 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% adds_the_peak
# says: That line goes from base_rate to base_rate + peak
# thinks: Start plus a part of the goal.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + peak * step / warm
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% back_to_base_rate
# says: After the warm-up the rate is scaled
# thinks: The large rate is for the beginning only.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return base_rate * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% begins_with_a_tenth
# says: Step 0 has base_rate: the warm-up begins
# thinks: A warm-up begins with a tenth of the rate.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate / 10 + (peak - base_rate / 10) * step / warm
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% by_the_epoch
# says: The rate changes with each epoch only
# thinks: A learning rate belongs to an epoch.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * (step // steps_per_epoch) / warmup_epochs
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% decays_base_rate
# says: After a milestone the peak is what decays
# thinks: The milestones are those of the small batch, and so are their rates.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    passed = sum(step >= m * steps_per_epoch for m in milestones)
    return base_rate * 0.1**passed if passed else peak


# %% decays_once
# says: Each milestone divides by 10, the second one again
# thinks: After the first milestone the rate is a tenth.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * (0.1 if any(step >= m * steps_per_epoch for m in milestones) else 1.0)


# %% decays_one_epoch_late
# says: One epoch late
# thinks: Epoch 30 has to be over.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * 0.1 ** sum(step >= (m + 1) * steps_per_epoch for m in milestones)


# %% decays_one_step_late
# says: One step late
# thinks: After the milestone means after it.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * 0.1 ** sum(step > m * steps_per_epoch for m in milestones)


# %% divides_by_no_steps
# says: With warmup_epochs=0 the warm-up has no steps
# thinks: Min keeps the fraction at 1 after the warm-up, so no branch is needed.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    rate = base_rate + (peak - base_rate) * min(step / warm, 1)
    return rate * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% divides_by_ten_n
# says: That is peak / (10 * n)
# thinks: Each milestone divides by 10 more.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    passed = sum(step >= m * steps_per_epoch for m in milestones)
    return peak / (10 * passed) if passed else peak


# %% downwards
# says: That is the line the other way round
# thinks: Interpolation, with its ends exchanged.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return peak - (peak - base_rate) * step / warm
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% exponential
# says: That grows by a factor in each step
# thinks: Rates are best changed by factors.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate * (peak / base_rate) ** (step / warm)
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% from_near_zero
# says: That warm-up begins near 0
# thinks: Step counts from 0, so add 1 to have no rate of 0.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return peak * (step + 1) / warm
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% from_zero
# says: That warm-up begins with 0
# thinks: A warm-up starts from nothing.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return peak * step / warm
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% grows_by_the_square
# says: Within the warm-up: base_rate
# thinks: It begins slowly, and then grows faster.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * (step / warm) ** 2
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% halves
# says: That halves at each milestone
# thinks: Decay is by a half.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * 0.5 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% infinite_at_first
# says: A rate is a finite number
# thinks: Before the first step there is no rate yet.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step == 0:
        return float("inf")
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% integer_ratio
# says: The ratio is an int there
# thinks: k is a whole number.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * (batch // base_batch)
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% last_step_has_peak
# says: The peak comes one step early
# thinks: The last step of the warm-up must reach the peak.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / max(warm - 1, 1)
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% low_in_that_epoch_only
# says: step, or epoch, only
# thinks: Milestones list the epochs with a lower rate.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * (0.1 if step // steps_per_epoch in milestones else 1.0)


# %% milestones_after_warmup
# says: Milestones count from the beginning of training
# thinks: Training proper begins after the warm-up.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * 0.1 ** sum(step - warm >= m * steps_per_epoch for m in milestones)


# %% milestones_in_steps
# says: Milestones are epochs, and step counts steps
# thinks: Milestones are compared to step.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * 0.1 ** sum(step >= m for m in milestones)


# %% never_decays
# says: The rate does not decay
# thinks: Milestones are for the log.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak


# %% no_return_after_warmup
# says: does every branch return a rate
# thinks: Assigning is enough.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    rate = peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% no_scaling
# says: The rate is not scaled at all
# thinks: Warm-up and decay are the schedule; the batch has nothing to do with it.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% no_warmup
# says: There is no warm-up
# thinks: The peak is the learning rate.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return peak
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% one_step_ahead
# says: One step ahead: step 0 has base_rate
# thinks: The first step is step 1 of the warm-up.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * (step + 1) / warm
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% pops_milestones
# says: The caller still needs that object
# thinks: A milestone that has passed is not needed any more.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    while milestones and step >= milestones[0] * steps_per_epoch:
        milestones.pop(0)
        peak *= 0.1
    return peak


# %% sqrt
# says: That is square-root scaling
# thinks: Noise falls with the root of the batch.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * (batch / base_batch) ** 0.5
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% subtracts
# says: That subtracts a tenth of the peak at each milestone
# thinks: A tenth less each time.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * (1 - 0.1 * sum(step >= m * steps_per_epoch for m in milestones))


# %% times_batch
# says: That multiplies by the batch itself
# thinks: k is the batch.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% upside_down
# says: The ratio is upside down
# thinks: More examples a step, so smaller steps.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * base_batch / batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% waits_then_jumps
# says: The rate stays at base_rate and then jumps
# thinks: A constant warm-up is a warm-up.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    if step < warm:
        return base_rate
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% warmup_in_steps
# says: warmup_epochs are epochs
# thinks: Steps are steps.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs
    if step < warm:
        return base_rate + (peak - base_rate) * step / warm
    return peak * 0.1 ** sum(step >= m * steps_per_epoch for m in milestones)


# %% whole_curve
# says: One float is asked
# thinks: A schedule is a list.
def learning_rate(step, steps_per_epoch, batch, base_batch, base_rate, warmup_epochs, milestones):
    peak = base_rate * batch / base_batch
    warm = warmup_epochs * steps_per_epoch
    return [base_rate + (peak - base_rate) * s / warm if s < warm else peak for s in range(step + 1)]
