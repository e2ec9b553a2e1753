"""What e04_one_f_one_b is asked: schedules that run, in GPipe's time, and hold no more than 1F1B does."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_schedules import SIZES, actions_text, fast, holds, legal, warmups
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong
from mpcourse.pipeline import Action, Schedule, naive, replay


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Every rank may call this; ranks do not talk."""
    # With two stages many a list is GPipe's too.
    sizes = sorted(SIZES, key=lambda size: size != (3, 6))
    one_by_one(answer, [partial(_one, stages=stages, microbatches=m) for stages, m in sizes])


def _one(answer: Answer, stages: int, microbatches: int) -> None:
    schedule = legal(answer, "one_f_one_b", stages, microbatches, _why_stuck)
    call = f"one_f_one_b({stages}, {microbatches})"
    fast(call, schedule, *_why_slow(schedule))
    for s, held in enumerate(holds(replay(schedule))):
        allowed = min(microbatches, stages - s)
        if held > allowed:
            raise Wrong(
                f"at most {counted(allowed, 'micro-batch')} in flight on stage {s}, from {call}",
                f"{held}: it runs {actions_text(schedule[s])}",
                _why_much(schedule, s),
            )


def _why_stuck(schedule: Schedule) -> str:
    ahead = warmups(schedule)
    if ahead == sorted(ahead) and ahead[0] < ahead[-1]:
        return (
            f"Stage 0 runs {counted(ahead[0], 'forward')} before its first backward, the last stage {ahead[-1]}. It is "
            "the other way round: the first stage needs the most, not the last, for its first gradient comes back last."
        )
    return ""


def _why_slow(schedule: Schedule) -> tuple[int, str]:
    """The stage that shows why, and why."""
    p, m = len(schedule), len(schedule[0]) // 2
    if schedule == naive(p, m):
        return 0, (
            "No forwards ahead: each micro-batch comes back before the next sets out. Stage s needs some forwards "
            "under way to keep the stages after it busy; how many stages are those?"
        )
    ahead = warmups(schedule)
    for s, got in enumerate(ahead):
        if got < min(m, p - s):
            return s, (
                f"Stage {s} runs {counted(got, 'forward')} before its first backward, and then waits: that gradient "
                f"comes back after the {p - 1 - s} stages behind it have had their turn. "
                f"It has time for {min(m, p - s)}."
            )
        if got > min(m, p - s):
            return s, _too_many(s, got, p, m)
    for kind, name in (("F", "forwards"), ("B", "backwards")):
        for s, row in enumerate(schedule):
            if (order := [a.microbatch for a in row if a.kind == kind]) != sorted(order):
                return s, (
                    f"Stage {s} takes its {name} in the order {_numbers(order)}. Micro-batches come in order from the "
                    "neighbour: whoever takes a later one first waits for it."
                )
    turns = (s for s, row in enumerate(schedule) if not _alternates(row[ahead[s] - 1 : len(row) - ahead[s] + 1]))
    why = "After the forwards ahead it is one forward, one backward, in turns, until no forward is left."
    return next(turns, 0), why


def _alternates(row: Sequence[Action]) -> bool:
    return all(a.kind != b.kind for a, b in pairwise(row))


def _why_much(schedule: Schedule, s: int) -> str:
    p, m, row = len(schedule), len(schedule[0]) // 2, schedule[s]
    if "".join(a.kind for a in row) == "F" * m + "B" * m and m > 1:
        return "That is GPipe's list: nothing is let go before all forwards are done. Alternate sooner."
    got, enough = warmups(schedule)[s], min(m, p - s)
    if got > enough:
        return _too_many(s, got, p, m)
    return "Once it alternates, one forward is followed by one backward: two forwards in a row let the number grow."


def _too_many(s: int, got: int, p: int, m: int) -> str:
    return (
        f"Stage {s} runs {counted(got, 'forward')} before its first backward; {min(m, p - s)} would do, the last of "
        f"them in a pair with that backward. It needs as many ahead as stages come after it: {p - 1 - s}."
    )


def _numbers(order: list[int]) -> str:
    return ", ".join(map(str, order[:8])) + (", ..." if len(order) > 8 else "")
