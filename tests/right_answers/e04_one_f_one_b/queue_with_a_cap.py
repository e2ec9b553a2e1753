# right: a deque holds what is in flight: a forward when there is room, else a backward of the oldest
"""Exercise e04: one forward, one backward (1F1B)."""

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
