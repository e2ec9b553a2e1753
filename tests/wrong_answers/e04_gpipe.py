"""Wrong answers to e04_gpipe. What a cell holds is told in tests/answers.py."""

# %% chain_left_as_iterator
# says: A list is asked: an iterator is empty once it has been read
# thinks: A chain of the forwards and the backwards is as good as a list, one can loop over it just the same.
from itertools import chain


def gpipe(stages, microbatches):
    return [
        chain((("F", k) for k in range(microbatches)), (("B", k) for k in reversed(range(microbatches))))
        for _ in range(stages)
    ]


# %% counts_from_one
# says: They are numbered from 0 to 1. This list counts from 1
# thinks: Micro-batches are numbered 1 to m.
def gpipe(stages, microbatches):
    schedule = []
    for s in range(1, stages + 1):
        forwards = [("F", k) for k in range(1, microbatches + 1)]
        backwards = [("B", k) for k in range(microbatches, 0, -1)]
        schedule.append(forwards + backwards)
    return schedule


# %% each_stage_starts_with_its_own_microbatch
# says: Stage 1 takes its forwards in another order than stage 0: it
# thinks: So that all stages have work from the start, stage s begins with micro-batch s and goes round from there.
def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        order = [(s + i) % microbatches for i in range(microbatches)]
        schedule.append([("F", k) for k in order] + [("B", k) for k in order[::-1]])
    return schedule


# %% forward_backward_per_microbatch
# says: Each micro-batch comes back before the next one sets out: one
# thinks: Each micro-batch goes all the way forward and then all the way back, and only then comes the next one.
def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        actions = []
        for k in range(microbatches):
            actions.append(("F", k))
            actions.append(("B", k))
        schedule.append(actions)
    return schedule


# %% groups_of_p_with_a_drain_between
# says: The pipeline is filled and drained more than once: each time
# thinks: The pipe is full with p micro-batches in it, so I fill it with p of them, drain it, and fill it again with
#   the next p.
def gpipe(stages, microbatches):
    actions = []
    for start in range(0, microbatches, stages):
        group = range(start, min(start + stages, microbatches))
        for k in group:
            actions.append(("F", k))
        for k in reversed(group):
            actions.append(("B", k))
    return [list(actions) for _ in range(stages)]


# %% idle_stages_when_few_microbatches
# says: Its gradient never arrives: B0 is not in stage 1's list
# thinks: With fewer micro-batches than stages there is no work for the stages left over, so their lists stay empty.
def gpipe(stages, microbatches):
    work = [("F", k) for k in range(microbatches)] + [("B", k) for k in range(microbatches)][::-1]
    used = min(stages, microbatches)
    return [work[:] for _ in range(used)] + [[] for _ in range(stages - used)]


# %% last_stage_drains_in_order
# says: stage 1 runs F0 F1 B0 B1
# thinks: The last stage has nobody after it, so it takes its backwards as the forwards came.
def gpipe(stages, microbatches):
    forwards = [("F", k) for k in range(microbatches)]
    backwards = [("B", k) for k in range(microbatches)]
    schedule = [forwards + backwards[::-1] for _ in range(stages)]
    schedule[-1] = forwards + backwards
    return schedule


# %% last_stage_turns_each_around_at_once
# says: That is 1F1B: as fast, and it holds less. It is the next
# thinks: The last stage has nobody after it to wait for, so it can do each backward right after its forward; the
#   others do all forwards, then all backwards.
def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        if s == stages - 1:
            actions = [(what, k) for k in range(microbatches) for what in "FB"]
        else:
            actions = [("F", k) for k in range(microbatches)] + [("B", k) for k in range(microbatches)]
        schedule.append(actions)
    return schedule


# %% middle_stages_drain_as_a_queue
# says: Stage 1 takes its backwards in another order than stage 0: it
# thinks: The first and the last stage turn the order round, the stages in between just pass things on first in, first
#   out.
def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        order = list(range(microbatches))
        actions = [("F", k) for k in order]
        if s == 0 or s == stages - 1:
            order.reverse()
        actions += [("B", k) for k in order]
        schedule.append(actions)
    return schedule


# %% one_backward_for_the_batch
# says: F0 has no backward: B0 is missing
# thinks: The micro-batches are only for the forward: the loss is averaged over the batch and there is a single
#   backward.
def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        actions = [("F", k) for k in range(microbatches)]
        actions.append(("B", microbatches - 1))
        schedule.append(actions)
    return schedule


# %% one_f_one_b_after_fill
# says: That is 1F1B: as fast, and it holds less. It is the next
# thinks: Filling means each stage runs forwards until the pipe behind it is full, and from then on it can already
#   start on backwards in between.
def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        fill = min(microbatches, stages - s)
        actions = [("F", k) for k in range(fill)]
        for k in range(fill, microbatches):
            actions += [("B", k - fill), ("F", k)]
        actions += [("B", k) for k in range(microbatches - fill, microbatches)]
        schedule.append(actions)
    return schedule


# %% one_list_times_stages
# says: F0 has run already
# thinks: I make the p empty lists with [[]] * stages and fill each of them in a loop.
def gpipe(stages, microbatches):
    schedule = [[]] * stages
    for s in range(stages):
        for k in range(microbatches):
            schedule[s].append(("F", k))
        for k in range(microbatches - 1, -1, -1):
            schedule[s].append(("B", k))
    return schedule


# %% one_stage_returns_bare_list
# says: One stage has one list, and it stands in a list too: [[...]]
# thinks: With one stage there is no pipeline, so the answer is simply that stage's list.
def gpipe(stages, microbatches):
    forwards = [("F", k) for k in range(microbatches)]
    backwards = [("B", k) for k in reversed(range(microbatches))]
    if stages == 1:
        return forwards + backwards
    return [forwards + backwards for _ in range(stages)]


# %% recomputes_before_each_backward
# says: F1 has run already
# thinks: GPipe throws the activations away and recomputes them, so before each backward the forward runs once more.
def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        actions = [("F", k) for k in range(microbatches)]
        for k in reversed(range(microbatches)):
            actions.append(("F", k))
            actions.append(("B", k))
        schedule.append(actions)
    return schedule


# %% sorted_product
# says: The gradient before its forward: F0 of this stage has not run
# thinks: All actions are the product of F and B with the micro-batches, and sorting puts them in order.
from itertools import product


def gpipe(stages, microbatches):
    return [sorted(product("FB", range(microbatches))) for _ in range(stages)]


# %% stage_inside_the_tuple
# says: An action is a tuple of two: ("F", 0) is the forward of
# thinks: An action has to say on which stage it runs, so I put the stage in the tuple too.
def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        row = []
        for k in range(microbatches):
            row.append(("F", s, k))
        for k in reversed(range(microbatches)):
            row.append(("B", s, k))
        schedule.append(row)
    return schedule


# %% stages_and_microbatches_swapped
# says: There are as many lists as micro-batches. Each of the 3 stages
# thinks: The outer list has one entry for each micro-batch, and the number in the tuple says which stage it is on.
def gpipe(stages, microbatches):
    forwards = [("F", i) for i in range(stages)]
    backwards = [("B", i) for i in reversed(range(stages))]
    return [forwards + backwards for _ in range(microbatches)]


# %% strings_for_actions
# says: An action is a tuple of two: ("F", 0) is the forward of
# thinks: An action is a short label such as F0 or B3, a string will do as well as a tuple.
def gpipe(stages, microbatches):
    one = [f"F{k}" for k in range(microbatches)] + [f"B{k}" for k in range(microbatches - 1, -1, -1)]
    return [list(one) for _ in range(stages)]


# %% waiting_written_as_none
# says: Waiting is not written down: a stage waits by itself until its
# thinks: A stage waits while the pipe fills and drains, and the waiting has to stand in its list as None so that the
#   columns are time steps.
def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        before = [None] * s
        middle = [None] * (2 * (stages - 1 - s))
        forwards = [("F", k) for k in range(microbatches)]
        backwards = [("B", k) for k in range(microbatches - 1, -1, -1)]
        schedule.append(before + forwards + middle + backwards + before)
    return schedule


# %% lists_not_filled_yet
# says: The lists are there, and empty.
# thinks: First the lists, one a stage; what goes into them comes next. Does it run so far?
def gpipe(stages, microbatches):
    return [[] for _ in range(stages)]


# %% half_written
# says: empty
# thinks: The lists come first, what is in them comes later.
def gpipe(stages, microbatches):
    return [[] for _ in range(stages)]


# %% grows
# says: keeps
# thinks: One list serves all calls.
row = []
def gpipe(stages, microbatches):
    row.extend([("F", k) for k in range(microbatches)] + [("B", k) for k in reversed(range(microbatches))])
    return [list(row) for _ in range(stages)]


# %% grows_default
# says: keeps
# thinks: A default argument is made anew in each call.
def gpipe(stages, microbatches, rows=[]):
    for _ in range(stages):
        rows.append([("F", k) for k in range(microbatches)] + [("B", k) for k in reversed(range(microbatches))])
    return rows


# %% cached_by_stages
# says: keeps
# thinks: A list that was made once need not be made again.
known = {}
def gpipe(stages, microbatches):
    if stages not in known:
        known[stages] = [[("F", k) for k in range(microbatches)] + [("B", k) for k in reversed(range(microbatches))] for _ in range(stages)]
    return known[stages]


# %% library_schedule
# says: mpcourse.pipeline
# thinks: The library has what is asked already.
from mpcourse.pipeline import gpipe as g
def gpipe(stages, microbatches):
    return [[(a.kind, a.microbatch) for a in row] for row in g(stages, microbatches)]


# %% one_more_than_needed_ahead
# says: A backward stands before a forward
# thinks: The pipeline is filled when each stage after this one has a micro-batch and one more is on its way; then
#   backwards can begin.
def gpipe(stages, microbatches):
    schedule = []
    for s in range(stages):
        ahead = min(microbatches, stages - s)
        actions = [("F", k) for k in range(ahead)]
        for k in range(ahead, microbatches):
            actions += [("F", k), ("B", k - ahead)]
        schedule.append(actions + [("B", k) for k in range(microbatches - ahead, microbatches)])
    return schedule


# %% prints_the_schedule
# says: Nothing came back: is the list returned?
# thinks: The check reads what is printed.
def gpipe(stages, microbatches):
    forwards = [("F", k) for k in range(microbatches)]
    backwards = [("B", k) for k in reversed(range(microbatches))]
    for stage in range(stages):
        print(forwards + backwards)


# %% one_list_for_all_stages
# says: These are actions: put them into a list for each stage
# thinks: All stages do the same, so one list says it for all of them.
def gpipe(stages, microbatches):
    return [("F", k) for k in range(microbatches)] + [("B", k) for k in reversed(range(microbatches))]
