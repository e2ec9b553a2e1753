"""Wrong answers to e04_one_f_one_b. What a cell holds is told in tests/answers.py."""

# %% ahead_counted_from_microbatches
# says: That is GPipe's list: nothing is let go before all forwards are
# thinks: There are m micro-batches in the pipe and stage s is s steps behind, so it runs m - s - 1 forwards ahead.
def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = max(0, microbatches - s - 1)
        actions = [("F", k) for k in range(ahead)]
        for k in range(ahead, microbatches):
            actions.append(("F", k))
            actions.append(("B", k - ahead))
        for k in range(microbatches - ahead, microbatches):
            actions.append(("B", k))
        schedule.append(actions)
    return schedule


# %% backward_first_in_the_pair
# says: The gradient before its forward: F0 of this stage has not run
# thinks: After p - s - 1 forwards the stage is full, so in each pair it must first let go of one with a B and then
#   take a new F.
def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, stages - s - 1)
        actions = [("F", k) for k in range(ahead)]
        for k in range(ahead, microbatches):
            actions.append(("B", k - ahead))
            actions.append(("F", k))
        for k in range(microbatches - ahead, microbatches):
            actions.append(("B", k))
        schedule.append(actions)
    return schedule


# %% backward_of_the_forward_just_done
# says: Stage 0 takes its backwards in the order 2, 3, 4, 5, 0, 1
# thinks: In each pair the backward belongs to the forward just before it, and the ones run ahead at the start get
#   their backwards at the end.
def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, stages - s - 1)
        warm_up = [("F", k) for k in range(ahead)]
        pairs = [(d, k) for k in range(ahead, microbatches) for d in "FB"]
        left = [("B", k) for k in range(ahead)]
        schedule.append(warm_up + pairs + left)
    return schedule


# %% bursts_of_p_minus_s
# says: Its input never arrives, for the stages are in a circular wait: stage 0 is
# thinks: A stage may hold p - s micro-batches, so it runs that many forwards, then that many backwards, and again.
def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        size = min(microbatches, stages - s)
        actions = []
        for start in range(0, microbatches, size):
            burst = range(start, min(start + size, microbatches))
            actions.extend(("F", k) for k in burst)
            actions.extend(("B", k) for k in burst)
        schedule.append(actions)
    return schedule


# %% forwards_ahead_grow_with_stage
# says: It is the other way round: the first stage needs the most, not the last
# thinks: Stage s comes later in the pipe, so it has s stages before it to be filled and runs s forwards ahead.
def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, s)
        actions = [("F", k) for k in range(ahead)]
        for k in range(ahead, microbatches):
            actions.append(("F", k))
            actions.append(("B", k - ahead))
        for k in range(microbatches - ahead, microbatches):
            actions.append(("B", k))
        schedule.append(actions)
    return schedule


# %% forwards_ahead_not_capped_at_m
# says: They are numbered from 0 to 0. No list may go on beyond the
# thinks: Stage s always runs p - s - 1 forwards ahead, that is the depth of the pipe and has nothing to do with m.
def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = stages - s - 1
        actions = [("F", k) for k in range(ahead)]
        done = 0
        for k in range(ahead, microbatches):
            actions += [("F", k), ("B", done)]
            done += 1
        while done < microbatches:
            actions.append(("B", done))
            done += 1
        schedule.append(actions)
    return schedule


# %% gpipe_backwards_in_order
# says: That is GPipe's list: nothing is let go before all forwards are
# thinks: 1F1B differs from GPipe in that the backwards come in the order of the forwards, so each activation goes
#   sooner.
def one_f_one_b(stages, microbatches):
    one = [("F", k) for k in range(microbatches)] + [("B", k) for k in range(microbatches)]
    return [list(one) for _ in range(stages)]


# %% gpipe_when_fewer_microbatches_than_stages
# says: That is GPipe's list: nothing is let go before all forwards are
# thinks: With fewer micro-batches than stages the pipe never gets full and there is nothing to alternate, so it is
#   GPipe.
def one_f_one_b(stages, microbatches):
    if microbatches < stages:
        everything = [("F", k) for k in range(microbatches)] + [("B", k) for k in range(microbatches)]
        return [list(everything) for _ in range(stages)]
    schedule = []
    for s in range(stages):
        ahead = stages - 1 - s
        actions = [("F", k) for k in range(ahead)]
        for k in range(microbatches - ahead):
            actions.extend([("F", k + ahead), ("B", k)])
        actions.extend(("B", k) for k in range(microbatches - ahead, microbatches))
        schedule.append(actions)
    return schedule


# %% last_backwards_reversed
# says: Stage 0 takes its backwards in the order 0, 1, 2, 3, 5, 4
# thinks: At the end the pipe drains as in GPipe, from the newest micro-batch back to the oldest.
def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, stages - s - 1)
        actions = [("F", k) for k in range(ahead)]
        for k in range(ahead, microbatches):
            actions.append(("F", k))
            actions.append(("B", k - ahead))
        for k in range(microbatches - 1, microbatches - ahead - 1, -1):
            actions.append(("B", k))
        schedule.append(actions)
    return schedule


# %% megatron_interleaved_count
# says: Stage 0 runs 5 forwards before its first backward; 3 would do
# thinks: I know the number of warm-up forwards from Megatron's interleaved schedule: two for each stage that comes
#   after.
def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, (stages - s - 1) * 2)
        actions = [("F", k) for k in range(ahead)]
        for k in range(ahead, microbatches):
            actions.append(("F", k))
            actions.append(("B", k - ahead))
        for k in range(microbatches - ahead, microbatches):
            actions.append(("B", k))
        schedule.append(actions)
    return schedule


# %% no_backwards_left_at_the_end
# says: F4 has no backward: B4 is missing
# thinks: After the alternation the batch is through: when the last forward has had its backward next to it, the list
#   is done.
def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, stages - s - 1)
        actions = [("F", k) for k in range(ahead)]
        for b, f in enumerate(range(ahead, microbatches)):
            actions.append(("F", f))
            actions.append(("B", b))
        schedule.append(actions)
    return schedule


# %% one_forward_too_few_ahead
# says: Stage 0 runs 2 forwards before its first backward, and then
# thinks: I count the stages from 1 as i = s + 1, and p - i - 1 stages still have to be filled after stage i, so that
#   many forwards run ahead.
def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        i = s + 1
        ahead = min(microbatches, max(0, stages - i - 1))
        f = b = 0
        actions = []
        while b < microbatches:
            if f < microbatches and f - b <= ahead:
                actions.append(("F", f))
                f += 1
            if f - b > ahead or f == microbatches:
                actions.append(("B", b))
                b += 1
        schedule.append(actions)
    return schedule


# %% one_forward_too_many_ahead
# says: Stage 0 runs 4 forwards before its first backward; 3 would do
# thinks: Stage s may hold p - s micro-batches, so it runs p - s forwards ahead and then one forward, one backward in
#   turns.
def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, stages - s)
        actions = [("F", k) for k in range(ahead)]
        for k in range(ahead, microbatches):
            actions.append(("F", k))
            actions.append(("B", k - ahead))
        for k in range(microbatches - ahead, microbatches):
            actions.append(("B", k))
        schedule.append(actions)
    return schedule


# %% one_stage_without_alternation
# says: That is GPipe's list: nothing is let go before all forwards are
# thinks: A single stage has no pipeline, there one just runs all forwards and then all backwards.
def one_f_one_b(stages, microbatches):
    if stages == 1:
        return [[("F", k) for k in range(microbatches)] + [("B", k) for k in range(microbatches)]]
    schedule = []
    for s in range(stages):
        n = min(microbatches, stages - s)
        actions = [("F", k) for k in range(n)]
        for k in range(microbatches):
            actions.append(("B", k))
            if n + k < microbatches:
                actions.append(("F", n + k))
        schedule.append(actions)
    return schedule


# %% only_p_minus_s_microbatches_at_all
# says: Its gradient never arrives: B1 is not in stage 2's list
# thinks: Stage s never has more than min(m, p - s) micro-batches, so that is how many it gets in the whole batch.
def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        mine = min(microbatches, stages - s)
        schedule.append([("F", k) for k in range(mine)] + [("B", k) for k in range(mine)])
    return schedule


# %% pairs_on_the_stages_between
# says: stage 1 runs F0 F1 B0 F2 F3 B1
# thinks: The stages between send two at a time, so that the neighbours are not interrupted so often.
def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, stages - 1 - s)
        size = 2 if 0 < s < stages - 1 else 1
        row = [("F", k) for k in range(ahead)]
        backwards = 0
        if ahead < microbatches:
            row += [("F", ahead), ("B", 0)]
            backwards = 1
        for k in range(ahead + 1, microbatches, size):
            pair = range(k, min(k + size, microbatches))
            row += [("F", i) for i in pair]
            row += [("B", backwards + i) for i in range(len(pair))]
            backwards += len(pair)
        schedule.append(row + [("B", k) for k in range(backwards, microbatches)])
    return schedule


# %% pipedream_without_flush
# says: F0 has run already
# thinks: The pipe is never emptied: instead of draining, a stage goes on with the forwards of the next batch while
#   the last backwards come in.
def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, stages - s - 1)
        actions = [("F", k) for k in range(ahead)]
        for k in range(microbatches):
            actions.append(("F", (k + ahead) % microbatches))
            actions.append(("B", k))
        schedule.append(actions)
    return schedule


# %% same_forwards_ahead_on_all_stages
# says: stage 1 runs F0 F1 F2 B0
# thinks: The pipe takes p - 1 steps to fill, so every stage runs p - 1 forwards first and then alternates.
def one_f_one_b(stages, microbatches):
    ahead = min(stages - 1, microbatches)
    actions = [("F", k) for k in range(ahead)]
    for k in range(microbatches - ahead):
        actions += [("F", ahead + k), ("B", k)]
    actions += [("B", k) for k in range(microbatches - ahead, microbatches)]
    return [actions[:] for _ in range(stages)]


# %% strict_alternation_everywhere
# says: No forwards ahead: each micro-batch comes back before the next
# thinks: One forward, one backward means just that: on every stage F 0, B 0, F 1, B 1 and so on.
def one_f_one_b(stages, microbatches):
    return [[(d, k) for k in range(microbatches) for d in ("F", "B")] for _ in range(stages)]


# %% two_forwards_two_backwards_on_the_last
# says: stage 2 runs F0 F1 B0 B1
# thinks: The last stage has no stage after it to feed, so there two forwards and two backwards in turns are as good.
def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, stages - 1 - s)
        row = [("F", k) for k in range(ahead)]
        for k in range(ahead, microbatches):
            row += [("F", k), ("B", k - ahead)]
        schedule.append(row + [("B", k) for k in range(microbatches - ahead, microbatches)])
    last = []
    for k in range(0, microbatches, 2):
        pair = range(k, min(k + 2, microbatches))
        last += [("F", i) for i in pair] + [("B", i) for i in pair]
    schedule[-1] = last
    return schedule


# %% warmup_of_s_plus_one
# says: It is the other way round: the first stage needs the most, not the last
# thinks: The later a stage, the longer it waits, so stage s warms up with s + 1 forwards.
def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        warmup = min(s + 1, microbatches)
        row = [("F", k) for k in range(warmup)]
        for k in range(microbatches):
            row.append(("B", k))
            if warmup + k < microbatches:
                row.append(("F", warmup + k))
        schedule.append(row)
    return schedule


# %% first_stage_feeds_the_rest
# says: two forwards in a row let the number grow
# thinks: Nothing comes before the first stage, so once the first gradient is back it can run all its forwards.
def one_f_one_b(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, stages - 1 - s)
        actions = [("F", k) for k in range(ahead)]
        for k in range(ahead, microbatches):
            actions += [("F", k), ("B", k - ahead)]
        schedule.append(actions + [("B", k) for k in range(microbatches - ahead, microbatches)])
    ahead = min(microbatches, stages)
    forwards = [("F", k) for k in range(microbatches)]
    backwards = [("B", k) for k in range(microbatches)]
    schedule[0] = forwards[:ahead] + backwards[:1] + forwards[ahead:] + backwards[1:]
    return schedule
