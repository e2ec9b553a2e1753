"""Unusual right answers to e04_one_f_one_b. What a cell holds is told in tests/answers.py."""

# %% namedtuple_heap_merge
# thinks: NamedTuple actions, forwards and backwards merged by heapq.merge; no warm-up, turns or cool-down written out.
import heapq
from typing import NamedTuple


class Step(NamedTuple):
    direction: str
    index: int


def one_f_one_b(stages, microbatches):
    def merged(s):
        lag = stages - s - 0.5
        forwards = ((k, Step("F", k)) for k in range(microbatches))
        backwards = ((k + lag, Step("B", k)) for k in range(microbatches))
        return [step for _, step in heapq.merge(forwards, backwards)]

    return [merged(s) for s in range(stages)]


# %% numpy_argsort
# thinks: numpy: sort by a key, B k comes right after F (k + p - s - 1).
import numpy as np


def one_f_one_b(stages, microbatches):
    k = np.arange(microbatches)
    names = [("F", i) for i in range(microbatches)] + [("B", i) for i in range(microbatches)]
    s = np.arange(stages)[:, None]
    keys = np.hstack([np.broadcast_to(2 * k, (stages, microbatches)), 2 * (k + stages - s - 1) + 1])
    return [[names[i] for i in row] for row in np.argsort(keys, axis=1, kind="stable")]


# %% queue_with_a_cap
# thinks: A deque holds what is in flight: a forward when there is room, else a backward of the oldest.
from collections import deque


def one_f_one_b(stages, microbatches):
    schedule = []
    for room in range(stages, 0, -1):
        todo, held, actions = deque(range(microbatches)), deque(), []
        while todo or held:
            if todo and len(held) < room:
                held.append(todo.popleft())
                actions.append(("F", held[-1]))
            else:
                actions.append(("B", held.popleft()))
        schedule.append(actions)
    return schedule


# %% recursion_from_the_last_stage
# thinks: Recursion over stages on a string of letters: the stage before has one F more in front and its last F less.
def one_f_one_b(stages, microbatches):
    def letters(after):
        if after == 0:
            return "FB" * microbatches
        head, _, tail = ("F" + letters(after - 1)).rpartition("F")
        return head + tail

    def numbered(text):
        count = {"F": -1, "B": -1}
        out = []
        for d in text:
            count[d] += 1
            out.append((d, count[d]))
        return out

    return [numbered(letters(stages - 1 - s)) for s in range(stages)]


# %% simulated_with_a_clock
# thinks: An event simulation with a clock: backward if one has arrived, else a forward if there is room for it.
def one_f_one_b(stages, microbatches):
    end = {}
    free = [0] * stages
    lists = [[] for _ in range(stages)]
    f, b = [0] * stages, [0] * stages
    now = 0
    while min(b) < microbatches:
        for s in range(stages):
            if free[s] > now:
                continue
            after = ("B", s + 1, b[s]) if s + 1 < stages else ("F", s, b[s])
            before = ("F", s - 1, f[s])
            if b[s] < f[s] and end.get(after, now + 1) <= now:
                action, took, cost = ("B", b[s]), b, 2
            elif f[s] < microbatches and f[s] - b[s] < stages - s and (s == 0 or end.get(before, now + 1) <= now):
                action, took, cost = ("F", f[s]), f, 1
            else:
                continue
            took[s] += 1
            free[s] = end[action[0], s, action[1]] = now + cost
            lists[s].append(action)
        now += 1
    return lists


# %% zip_longest
# thinks: Itertools only: the forwards left zipped with all backwards, the gaps dropped.
from itertools import chain, islice, repeat, zip_longest


def one_f_one_b(stages, microbatches):
    def stage(s):
        forwards = zip(repeat("F"), range(microbatches))
        backwards = zip(repeat("B"), range(microbatches))
        ahead = list(islice(forwards, stages - s - 1))
        turns = chain.from_iterable(zip_longest(forwards, backwards))
        return ahead + [a for a in turns if a]

    return list(map(stage, range(stages)))
