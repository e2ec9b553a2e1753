"""What e04_gpipe is asked: schedules that run, in GPipe's time, and all forwards before all backwards."""

from collections import Counter
from functools import partial

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_schedules import SIZES, actions_text, fast, legal
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong
from mpcourse.pipeline import Schedule, naive, one_f_one_b


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Every rank may call this; ranks do not talk."""
    one_by_one(answer, [partial(_one, stages=stages, microbatches=m) for stages, m in SIZES])


def _one(answer: Answer, stages: int, microbatches: int) -> None:
    schedule = legal(answer, "gpipe", stages, microbatches)
    call = f"gpipe({stages}, {microbatches})"
    fast(call, schedule, *_why_slow(schedule))
    for s, row in enumerate(schedule):
        kinds = "".join(a.kind for a in row)
        if kinds != "F" * microbatches + "B" * microbatches:
            why = "A backward stands before a forward. GPipe fills first, and drains when all forwards are done."
            if schedule == one_f_one_b(stages, microbatches):
                why = "That is 1F1B: as fast, and it holds less. It is the next exercise; GPipe is asked here."
            raise Wrong(f"all forwards, then all backwards on stage {s}, from {call}", actions_text(row), why)


def _why_slow(schedule: Schedule) -> tuple[int, str]:
    """The stage that shows why, and why."""
    if schedule == naive(len(schedule), len(schedule[0]) // 2):
        return 0, "Each micro-batch comes back before the next one sets out: one stage works, all others wait."
    for kind, name in (("F", "forwards"), ("B", "backwards")):
        orders = [[a.microbatch for a in row if a.kind == kind] for row in schedule]
        usual = list(Counter(map(tuple, orders)).most_common(1)[0][0])
        for s, order in enumerate(orders):
            if order != usual:
                return s, (
                    f"Stage {s} takes its {name} in another order than stage {orders.index(usual)}: it waits for one "
                    "that comes late, while others are there. All stages take them in one order."
                )
    s = next((s for s, row in enumerate(schedule) if "BF" in "".join(a.kind for a in row)), 0)
    return (
        s,
        "The pipeline is filled and drained more than once: each time costs p - 1 turns. Fill it with all forwards.",
    )
