"""Unusual right answers to e04_gpipe. What a cell holds is told in tests/answers.py."""

# %% backwards_in_order
# thinks: Backwards in the order 0..m-1, from itertools.product.
from itertools import product


def gpipe(stages, microbatches):
    return [list(product("FB", range(microbatches))) for _ in range(stages)]


# %% namedtuple_and_stack
# thinks: Actions are a NamedTuple (still tuples), backwards popped from a stack.
from typing import NamedTuple


class Action(NamedTuple):
    what: str
    microbatch: int


def gpipe(stages, microbatches):
    schedule = []
    for _ in range(stages):
        held, actions = [], []
        for k in range(microbatches):
            held.append(k)
            actions.append(Action("F", k))
        while held:
            actions.append(Action("B", held.pop()))
        schedule.append(actions)
    return schedule


# %% numpy_columns
# thinks: numpy arrays for the letters and the numbers, made plain Python by tolist().
import numpy as np


def gpipe(stages, microbatches):
    up = np.arange(microbatches)
    numbers = np.concatenate([up, up[::-1]])
    letters = np.repeat(np.array(["F", "B"]), microbatches)
    rows = np.broadcast_to(numbers, (stages, 2 * microbatches)).tolist()
    return [list(zip(letters.tolist(), row)) for row in rows]


# %% recursion_like_an_onion
# thinks: Recursion on both counts: F k, what is inside, B k.
def gpipe(stages, microbatches):
    def onion(k):
        if k == microbatches:
            return ()
        return (("F", k), *onion(k + 1), ("B", k))

    if stages == 0:
        return []
    return gpipe(stages - 1, microbatches) + [list(onion(0))]


# %% same_list_object_for_all_stages
# thinks: All stages share one and the same list object; backward numbers by ~k, indices of a range.
def gpipe(stages, microbatches):
    numbers = range(microbatches)
    one = [("F", k) for k in numbers] + [("B", numbers[~k]) for k in numbers]
    return [one] * stages


# %% simulated_step_by_step
# thinks: A simulation: at each time step a stage takes what has arrived, forwards first; backwards come out as 0..m-1.
def gpipe(stages, microbatches):
    done = {}
    lists = [[] for _ in range(stages)]
    step = 0
    while len(done) < 2 * stages * microbatches:
        now = []
        for s in range(stages):
            f = sum(1 for d, _ in lists[s] if d == "F")
            b = len(lists[s]) - f
            if f < microbatches:
                if s == 0 or done.get((s - 1, "F", f), step) < step:
                    now.append((s, "F", f))
            elif b < microbatches:
                if s == stages - 1 or done.get((s + 1, "B", b), step) < step:
                    now.append((s, "B", b))
        for s, d, k in now:
            done[s, d, k] = step
            lists[s].append((d, k))
        step += 1
    return lists
