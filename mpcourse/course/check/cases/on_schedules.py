"""What checks of pipeline schedules share: a legal schedule or the reason against it, and its bubble against par."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.wrong import Wrong, short
from mpcourse.pipeline import Action, Costs, Execution, IllegalAction, Schedule, replay

# Stages and micro-batches, small ones first: their wrong schedules can be read at a glance.
SIZES = [(2, 2), (3, 6), (2, 3), (1, 1), (1, 3), (3, 1), (3, 2), (3, 3), (4, 8), (4, 2), (5, 7), (8, 3), (8, 32)]
# What a forward and a backward take. No order of actions is good for one of them alone.
COSTS = [(1.0, 2.0), (1.0, 1.0), (3.0, 1.0)]
TUPLE = 'An action is a tuple of two: ("F", 0) is the forward of micro-batch 0, ("B", 0) its backward.'


def legal(
    answer: Answer, name: str, stages: int, microbatches: int, hint: Callable[[Schedule], str] = lambda schedule: ""
) -> Schedule:
    """What name(stages, microbatches) returns, if it is a schedule that runs every micro-batch; else Wrong.

    hint: what may lie behind a schedule that cannot run, told after the reason.
    """
    call = f"{name}({stages}, {microbatches})"
    schedule = _read(answer.call(name, stages, microbatches), call, stages, microbatches)
    if not any(schedule):
        why = f"Each stage runs all {microbatches} micro-batches, forward and backward. The lists are there, and empty."
        raise Wrong(f"actions on each of {stages} stages from {call}", short(schedule), why)
    for s, row in enumerate(schedule):
        for a in row:
            if not 0 <= a.microbatch < microbatches:
                ks = sorted({b.microbatch for b in row})
                from_one = ks[0] == 1 and ks[-1] == microbatches
                why = f"They are numbered from 0 to {microbatches - 1}."
                why += " This list counts from 1." if from_one else " No list may go on beyond the last one."
                raise Wrong(f"{counted(microbatches, 'micro-batch')} from {call}", f"{a} on stage {s}", why)
    try:
        replay(schedule)
    except IllegalAction as error:
        why = f"{_sentence(error.reason)} {hint(schedule)}".rstrip()
        raise Wrong(f"a schedule that can run from {call}", _at(schedule, error), why) from None
    for s, row in enumerate(schedule):
        if missing := [Action("F", k) for k in range(microbatches) if Action("F", k) not in row]:
            why = f"Each stage runs all {microbatches} micro-batches, forward and backward."
            raise Wrong(f"{missing[0]} on each stage, from {call}", f"stage {s} runs {actions_text(row)}", why)
    return schedule


def fast(call: str, schedule: Schedule, stage: int, why: str) -> None:
    """Raise Wrong where `schedule` idles more than (p - 1) / (m + p - 1) of its time: `why`, to be seen on `stage`."""
    par = bubble(len(schedule), len(schedule[0]) // 2)
    for forward, backward in COSTS:
        if (got := replay(schedule, Costs(forward, backward)).bubble) > par + 1e-9:
            raise Wrong(
                f"a bubble of {100 * par:.1f} % of the time from {call}",
                f"{100 * got:.1f} %: the schedule can run, but stages wait too long (forwards that take {forward:g}, "
                f"backwards {backward:g}); stage {stage} runs {actions_text(schedule[stage])}",
                why,
            )


def bubble(stages: int, microbatches: int) -> float:
    """Par: the idle share of a schedule that fills once and drains once."""
    return (stages - 1) / (microbatches + stages - 1)


def actions_text(row: Sequence[Action], limit: int = 12) -> str:
    """`F0 F1 B1 B0`."""
    return " ".join(str(a) for a in row[:limit]) + (" ..." if len(row) > limit else "") if row else "nothing"


def warmups(schedule: Schedule) -> list[int]:
    """How many forwards each stage runs before its first backward."""
    return [next((i for i, a in enumerate(row) if a.kind == "B"), len(row)) for row in schedule]


def _read(got: Any, call: str, stages: int, microbatches: int) -> Schedule:
    asked = f"a list of actions for each of {stages} stages from {call}"
    if stages == 1:
        asked = f"a list with one list of actions in it from {call}"
    if not isinstance(got, list | tuple):
        why = "Nothing came back: is the list returned?" if got is None else "Return a list of lists."
        raise Wrong(asked, short(got), why)
    if got and all(_is_action(a) for a in got):
        why = "These are actions: put them into a list for each stage."
        if stages == 1:
            why = "One stage has one list, and it stands in a list too: [[...]]. Who calls this takes [0] of it."
        raise Wrong(asked, short(got), why)
    if len(got) != stages:
        why = f"Each of the {stages} stages has a list of its own."
        if len(got) == microbatches:
            why = f"There are as many lists as micro-batches. {why} Are stages and micro-batches mixed up?"
        raise Wrong(asked, f"{len(got)} of them: {short(got)}", why)
    return [_row(row, s, asked) for s, row in enumerate(got)]


def _row(row: Any, s: int, asked: str) -> list[Action]:
    if not isinstance(row, list | tuple):
        why = "A list is asked: an iterator is empty once it has been read. list(...) makes one of it."
        raise Wrong(asked, f"stage {s} has {short(row)}", why if hasattr(row, "__next__") else "A list is asked.")
    actions = []
    for i, item in enumerate(row):
        if item is None:
            why = "Waiting is not written down: a stage waits by itself until its next action's input is there."
            raise Wrong(asked, f"None in stage {s}'s list, at {i}", why)
        if not isinstance(item, list | tuple) or len(item) != 2:
            why = TUPLE
            if isinstance(item, list | tuple) and len(item) == 3:
                why += " Which stage it is says the place of the list."
            raise Wrong(asked, f"{short(item)} in stage {s}'s list, at {i}", why)
        kind, k = item
        try:
            k = operator.index(k)
        except TypeError:
            raise Wrong(asked, f"{short(item)} in stage {s}'s list, at {i}", TUPLE) from None
        if kind not in ("F", "B"):
            raise Wrong(asked, f"{short(item)} in stage {s}'s list, at {i}", TUPLE)
        actions.append(Action(kind, k))
    return actions


def _is_action(item: Any) -> bool:
    return isinstance(item, list | tuple) and len(item) == 2 and item[0] in ("F", "B") and not isinstance(item[1], list)


def _at(schedule: Schedule, error: IllegalAction) -> str:
    where = f"stage {error.stage} at {error.action}" if error.action else f"stage {error.stage} at its end"
    return f"{where}; its list is {actions_text(schedule[error.stage])}"


def _sentence(reason: str) -> str:
    return reason[:1].upper() + reason[1:] + "."


def holds(done: Execution) -> list[int]:
    """Micro-batches whose activations each stage holds at most."""
    return [round(peak) for peak in done.peak]
