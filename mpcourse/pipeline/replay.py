"""Replaying a schedule without a model: whether it can run, and how long it takes."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mpcourse.pipeline.costs import Costs
from mpcourse.pipeline.execution import Execution, Timed
from mpcourse.pipeline.schedule import Action, Schedule
from mpcourse.virtual.timeline import Event


class IllegalAction(ValueError):
    """An action that cannot run.

    stage: the number of its stage.
    index: its place in that stage's list.
    action: None if an action is missing at the end of the list.
    reason: why it cannot run.
    """

    def __init__(self, stage: int, index: int, action: Action | None, reason: str) -> None:
        at = f"stage {stage}, action {index}, {action}" if action else f"stage {stage}, at its end"
        super().__init__(f"{at}: {reason}")
        self.stage, self.index, self.action, self.reason = stage, index, action, reason


@dataclass
class _Stage:
    """Where a stage is in its list, what it has done, and when."""

    actions: list[Action]
    next: int = 0
    free: float = 0.0
    done: set[Action] = field(default_factory=set)
    held: int = 0
    timed: list[Timed] = field(default_factory=list)

    @property
    def head(self) -> Action | None:
        return self.actions[self.next] if self.next < len(self.actions) else None


def replay(schedule: Schedule, costs: Costs | None = None, cap: float | None = None, whole: bool = True) -> Execution:
    """Run a schedule by its rules alone, and return when each action begins and ends.

    schedule: a list of actions for each stage.
    costs: None: forward 1, backward 2, its weight part 1, transfers 0.
    cap: the most micro-batches whose activations a stage may hold, counted as in `Execution.peak`; None: no limit.
    whole: pass False for a schedule that is still being made; actions may then be missing at the end.

    A forward needs the activation of the model's part before it. A backward (or its input part) needs its own forward
    and the gradient of the part after it. A weight part needs its input part.
    Raises IllegalAction for the first action, in time, that cannot run, and where an action is missing; ValueError if
    `schedule` is no schedule.
    """
    costs = costs or Costs()
    schedule = checked(schedule)
    p = len(schedule)
    chunks = chunks_of(schedule)
    seconds, transfer = costs.table(p * chunks, chunks), costs.cuts(p * chunks)
    stages = [_Stage(actions) for actions in schedule]
    arrived: dict[tuple[str, int, int], float] = {}  # "F" or "B", micro-batch, part -> when its input arrived
    links: dict[tuple[int, int], float] = {}
    transfers: list[Event] = []
    ready: list[tuple[float, int, str]] = []  # when a stage can go on, its number, and why not, where that is illegal
    waiting = set(range(p))

    def look(s: int) -> None:
        """Note when a stage can go on, once that is known."""
        if (a := stages[s].head) is None:
            return
        reason = _own_reason(a, stages[s], None if cap is None else cap * chunks)
        at = 0.0 if reason else _arrival(a, a.chunk * p + s, p * chunks, arrived)
        if at is not None:
            heapq.heappush(ready, (max(stages[s].free, at), s, reason))
            waiting.discard(s)

    for s in range(p):
        look(s)
    while ready:
        # Take the first in time of all stages that can go on, so that the first mistake found is the first one made.
        start, s, reason = heapq.heappop(ready)
        stage = stages[s]
        a = stage.actions[stage.next]
        if reason:
            raise IllegalAction(s, stage.next, a, reason)
        part = a.chunk * p + s
        end = start + seconds[a.kind][part]
        if a.kind in "BI" and stage.actions[stage.next - 1] != a.of("F"):
            end += seconds["again"][part]
        stage.timed.append(Timed(a, start, end))
        stage.done.add(a)
        stage.held += {"F": 1, "B": -1, "W": -1, "I": 0}[a.kind]
        stage.next, stage.free = stage.next + 1, end
        waiting.add(s)
        other = part + 1 if a.kind == "F" else part - 1
        if a.kind != "W" and 0 <= other < p * chunks:
            at, link = end, (s, other % p)
            if s != other % p and (took := transfer[min(part, other)]):
                begin = max(end, links.get(link, 0.0))
                at = links[link] = begin + took
                lane = f"stage {s} -> stage {other % p}"
                transfers.append(Event(lane, str(a), "copy", begin, at, end))
            arrived["F" if a.kind == "F" else "B", a.microbatch, other] = at
            if other % p in waiting and other % p != s:
                look(other % p)
        look(s)
    _finished(stages, p * chunks, whole)
    return Execution([stage.timed for stage in stages], transfers)


def _own_reason(a: Action, stage: _Stage, cap: float | None) -> str:
    """Explain why a stage's own past forbids an action; "" where it does not."""
    k = a.microbatch
    forward, whole, half = a.of("F"), a.of("B"), a.of("I")
    if a in stage.done:
        return f"{a} has run already"
    if a.kind == "F":
        if cap is not None and stage.held + 1 > cap + 1e-9:
            return (
                f"one more micro-batch's activations are over the cap: {stage.held} are held, and none is let go "
                "before its backward"
            )
    elif a.kind in "BI":
        if forward not in stage.done:
            return f"the gradient before its forward: {forward} of this stage has not run"
        if (other := half if a.kind == "B" else whole) in stage.done:
            return f"the backward of micro-batch {k} is run twice: {other} was before"
    elif half not in stage.done:
        if whole in stage.done:
            return f"{whole} was the whole backward, with the weights' gradients"
        return f"the weights' gradients before the input's: {half} of this stage has not run"
    return ""


def _arrival(a: Action, part: int, parts: int, arrived: dict[tuple[str, int, int], float]) -> float | None:
    """Return when an action's input from other stages arrived, or None if it has not."""
    if a.kind == "W" or (a.kind == "F" and part == 0) or (a.kind in "BI" and part == parts - 1):
        return 0.0
    return arrived.get(("F" if a.kind == "F" else "B", a.microbatch, part))


def _finished(stages: list[_Stage], parts: int, whole: bool) -> None:
    """Raise IllegalAction where a stage still waits, or where a stage of a whole schedule has ended too early."""
    p = len(stages)
    waiting = [(s, stage) for s, stage in enumerate(stages) if stage.head]
    in_parts = any(a.kind == "I" for stage in stages for a in stage.actions)
    reasons = {}
    for s, stage in waiting:
        a = stage.head
        assert a is not None
        other = a.chunk * p + s + (-1 if a.kind == "F" else 1)
        chunk, owner = divmod(other, p)
        kinds = "F" if a.kind == "F" else "BI" if in_parts else "B"
        needed = [Action(kind, a.microbatch, chunk) for kind in kinds]
        what = "activation" if a.kind == "F" else "gradient"
        if not any(n in stages[owner].actions for n in needed):
            names = " or ".join(map(str, needed))
            never = f"its {what} never arrives: {names} is not in stage {owner}'s list"
            yet = f"its {what} is not there yet: {names} of stage {owner} comes first"
            raise IllegalAction(s, stage.next, a, never if whole else yet)
        wanted = next(n for n in needed if n in stages[owner].actions)
        reasons[s] = f"stage {s} is at {a} and waits for {wanted} of stage {owner}"
    if waiting:
        s, stage = waiting[0]
        cycle = "; ".join(reasons.values())
        why = f"its input never arrives, for the stages are in a circular wait: {cycle}"
        raise IllegalAction(s, stage.next, stage.head, why)
    count = 1 + max(a.microbatch for stage in stages for a in stage.actions) if whole else 0
    for s, stage in enumerate(stages):
        for k in range(count):
            for c in range(parts // p):
                reason = _missing(k, c, stage.done)
                if reason:
                    raise IllegalAction(s, len(stage.actions), None, reason)


def _missing(k: int, c: int, done: set[Action]) -> str | None:
    forward, whole, half, weight = (Action(kind, k, c) for kind in "FBIW")
    if forward not in done:
        return f"{forward} is missing: each stage runs every micro-batch"
    if whole not in done and half not in done:
        return f"{forward} has no backward: {whole} is missing"
    if half in done and weight not in done:
        return f"{half} is half of a backward: {weight} is missing"
    return None


def checked(schedule: Iterable[Iterable[Sequence]]) -> Schedule:
    """Return a schedule as lists of Actions.

    schedule: a list for each stage, of Actions or plain tuples ("F", 0).
    Raises ValueError if it is no schedule.
    """
    made: Schedule = []
    for s, row in enumerate(schedule):
        actions = []
        for i, given in enumerate(row):
            if not isinstance(given, tuple | list) or not 2 <= len(given) <= 3 or given[0] not in ("F", "B", "I", "W"):
                raise ValueError(f"stage {s}, action {i}: {given!r} is no action such as Action('F', 0)")
            if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in given[1:]):
                raise ValueError(f"stage {s}, action {i}: {given!r} needs a micro-batch and a chunk from 0 on")
            actions.append(Action(*given))
        made.append(actions)
    if not made or not any(made):
        raise ValueError("a schedule has a list of actions for each stage: this one is empty")
    return made


def chunks_of(schedule: Schedule) -> int:
    """Return the number of parts of the model that each stage has.

    schedule: a list of actions for each stage.
    """
    return 1 + max(a.chunk for row in schedule for a in row)


def microbatches_of(schedule: Schedule) -> int:
    """Return the number of micro-batches that a batch is cut into.

    schedule: a list of actions for each stage.
    """
    return 1 + max(a.microbatch for row in schedule for a in row)
