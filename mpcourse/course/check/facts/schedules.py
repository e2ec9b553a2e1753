"""Schedules: what a learner's function returns, whether it can run, and how long its stages wait."""

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.rules import Rule, Test, always, demand
from mpcourse.course.check.wrong import short
from mpcourse.pipeline import Action, Costs, IllegalAction, replay

# Stages and micro-batches, small ones first: their wrong schedules can be read at a glance.
SIZES = [(2, 2), (3, 6), (2, 3), (1, 1), (1, 3), (3, 1), (3, 2), (3, 3), (4, 8), (4, 2), (5, 7), (8, 3), (8, 32)]
# What a forward and a backward take. No order of actions is good for one of them alone.
COSTS = [(1.0, 2.0), (1.0, 1.0), (3.0, 1.0)]


@dataclass(frozen=True)
class Scheduled:
    """What `name(p, m)` returned for p stages and m micro-batches. stage: the one that shows what is wrong."""

    p: int
    m: int
    got: Any

    name = ""
    stage = property(lambda self: 0)
    call = property(lambda self: f"{self.name}({self.p}, {self.m})")
    microbatches = property(lambda self: counted(self.m, "micro-batch"))
    last = property(lambda self: self.m - 1)
    shown = property(lambda self: short(self.got))
    number = property(lambda self: len(self.got))
    no_list = property(lambda self: _first_item([self.got], lambda row: not _is_list(row)))
    no_action = property(lambda self: _first_item(self.got, lambda item: not is_action(item)))
    schedule = cached_property(lambda self: [[Action(kind, operator.index(k)) for kind, k in row] for row in self.got])
    row = property(lambda self: actions_text(self.schedule[self.stage]))
    beyond = property(lambda self: _first_item(self.schedule, lambda a: not 0 <= a.microbatch < self.m))
    used = property(lambda self: {a.microbatch for row in self.schedule for a in row})
    missing = property(lambda self: min({*range(self.m)} - self.used, default=None))
    kinds = cached_property(lambda self: ["".join(a.kind for a in row) for row in self.schedule])
    ahead = property(lambda self: [len(kinds.partition("B")[0]) for kinds in self.kinds])
    held = cached_property(lambda self: [round(peak) for peak in replay(self.schedule).peak])
    par = property(lambda self: 100 * (self.p - 1) / (self.m + self.p - 1))

    @cached_property
    def illegal(self) -> IllegalAction | None:
        try:
            replay(self.schedule)
        except IllegalAction as error:
            return error
        return None

    reason = property(lambda self: f"{self.illegal.reason[:1].upper()}{self.illegal.reason[1:]}.")
    at = property(lambda self: self.illegal.action or "its end")
    stuck_row = property(lambda self: actions_text(self.schedule[self.illegal.stage]))

    @cached_property
    def slow(self) -> tuple[float, float, float] | None:
        """(percent of the time that stages idle, what a forward takes, a backward) where stages idle for too long."""
        bubbles = ((100 * replay(self.schedule, Costs(*costs)).bubble, *costs) for costs in COSTS)
        return first(found for found in bubbles if found[0] > self.par + 1e-7)

    def order(self, stage: int, kind: str) -> list[int]:
        """Return the micro-batches of a stage's forwards, or of its backwards, in their order."""
        return [a.microbatch for a in self.schedule[stage] if a.kind == kind]


def each_size(answer: Answer, facts: type[Scheduled], tests: Sequence[Test], sizes: Iterable = SIZES) -> None:
    """Judge what the learner's function returns for each of `sizes`, of stages and micro-batches."""

    def one(own: Answer, p: int, m: int) -> None:
        demand(tests, facts(p, m, own.call(facts.name, p, m)))

    one_by_one(answer, [partial(one, p=p, m=m) for p, m in sizes])


def first(found: Iterable[Any]) -> Any:
    """Return the first of what was found; None where nothing was."""
    return next(iter(found), None)


def actions_text(row: Sequence[Action], limit: int = 12) -> str:
    """Show a row as `F0 F1 B1 B0`."""
    return " ".join(str(a) for a in row[:limit]) + (" ..." if len(row) > limit else "") if row else "nothing"


def is_action(item: Any) -> bool:
    """Return whether it is a pair of "F" or "B" and an integer."""
    return _is_list(item) and len(item) == 2 and item[0] in ("F", "B") and hasattr(item[1], "__index__")


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _first_item(rows: Sequence[Sequence[Any]], wrong: Callable[[Any], bool]) -> tuple[int, int, Any, str] | None:
    """Return (number of the row, place in it, item, how to show it) of the first item that is wrong."""
    return first((s, i, item, short(item)) for s, row in enumerate(rows) for i, item in enumerate(row) if wrong(item))


# -- what is said --


def _lists(f: Scheduled) -> str:
    one = "a list with one list of actions in it" if f.p == 1 else f"a list of actions for each of {f.p} stages"
    return f"{one} from {f.call}"


EVERY = "Each stage runs all {m} micro-batches, forward and backward."
OWN = "Each of the {p} stages has a list of its own."
TUPLE = 'An action is a tuple of two: ("F", 0) is the forward of micro-batch 0, ("B", 0) its backward.'
INSIDE = f"{TUPLE} Which stage it is says the place of the list."
NO_ACTION = "{no_action[3]} in stage {no_action[0]}'s list, at {no_action[1]}"
EMPTY = f"{EVERY} The lists are there, and empty."
ITERATOR = "A list is asked: an iterator is empty once it has been read. list(...) makes one of it."
NUMBERED = "They are numbered from 0 to {last}."
BARE = "One stage has one list, and it is in a list too: [[...]]. Who calls this takes [0] of it."
WAITING = "Waiting is not written down: a stage waits by itself until its next action's input is there."
WHYS_BARE = [
    Rule("one stage", lambda f: f.p == 1, BARE),
    Rule("stages", always, "These are actions: put them into a list for each stage."),
]
SWAPPED = f"There are as many lists as micro-batches. {OWN} Are stages and micro-batches mixed up?"
WHYS_NUMBER = [Rule("swapped", lambda f: len(f.got) == f.m, SWAPPED), Rule("other number", always, OWN)]
WHYS_ROW = [Rule("iterator", lambda f: hasattr(f.no_list[2], "__next__"), ITERATOR)]
WHYS_ACTION = [
    Rule("waiting", lambda f: f.no_action[2] is None, WAITING),
    Rule("stage inside", lambda f: _is_list(f.no_action[2]) and len(f.no_action[2]) == 3, INSIDE),
    Rule("no tuple", always, TUPLE),
]
WHYS_BEYOND = [
    Rule("from 1", lambda f: f.used == {*range(1, f.m + 1)}, f"{NUMBERED} This list counts from 1."),
    Rule("beyond", always, f"{NUMBERED} No list may go on beyond the last one."),
]
READABLE = [
    Test("None", lambda f: f.got is None, _lists, "{shown}", "Nothing came back: is the list returned?"),
    Test("no list", lambda f: not _is_list(f.got), _lists, "{shown}"),
    Test("one list", lambda f: f.got and all(map(is_action, f.got)), _lists, "{shown}", WHYS_BARE),
    Test("number of lists", lambda f: len(f.got) != f.p, _lists, "{number} of them: {shown}", WHYS_NUMBER),
    Test("no row", lambda f: f.no_list, _lists, "stage {no_list[1]} has {no_list[3]}", WHYS_ROW),
    Test("no action", lambda f: f.no_action, _lists, NO_ACTION, WHYS_ACTION),
    Test("empty", lambda f: not any(f.schedule), "actions on each of {p} stages from {call}", "{shown}", EMPTY),
    Test("no such", lambda f: f.beyond, "{microbatches} from {call}", "{beyond[2]} on stage {beyond[0]}", WHYS_BEYOND),
]


def legal(whys: Sequence[Rule] = ()) -> list[Test]:
    """Return tests of whether a schedule can be read and runs all micro-batches. whys: why it cannot run."""
    can_run, stuck = "a schedule that can run from {call}", "stage {illegal.stage} at {at}; its list is {stuck_row}"
    # What one stage leaves out, and the others do not, cannot run.
    left_out = "F{missing} on each stage, from {call}"
    return [
        *READABLE,
        Test("stuck", lambda f: f.illegal, can_run, stuck, [*whys, Rule("illegal", always, "{reason}")]),
        Test("incomplete", lambda f: f.missing is not None, left_out, "stage {stage} runs {row}", EVERY),
    ]


def fast(whys: Sequence[Rule]) -> Test:
    """Return a test of whether a schedule idles for more than (p - 1) / (m + p - 1) of its time."""
    got = (
        "{slow[0]:.1f} %: the schedule can run, but stages wait too long (forwards that take {slow[1]:g}, backwards "
        "{slow[2]:g}); stage {stage} runs {row}"
    )
    return Test("slow", lambda f: f.slow, "a bubble of {par:.1f} % of the time from {call}", got, whys)
