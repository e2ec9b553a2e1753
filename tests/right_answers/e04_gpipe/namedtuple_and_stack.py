# right: actions are a NamedTuple (still tuples), backwards popped from a stack
"""Exercise e04: GPipe's schedule."""

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
