"""What e04_gpipe is asked: schedules that run, in GPipe's time, and all forwards before all backwards."""

from collections import Counter
from functools import cached_property
from itertools import accumulate

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.schedules import Scheduled, each_size, fast, legal
from mpcourse.course.check.rules import Rule, Test, always
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.pipeline import naive, one_f_one_b


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    each_size(answer, Facts, TESTS)


class Facts(Scheduled):
    """What gpipe returned."""

    name = "gpipe"

    @cached_property
    def apart(self) -> tuple[int, str, int] | None:
        """(stage, what it takes in another order than most stages, one of these)."""
        for kind, name in (("F", "forwards"), ("B", "backwards")):
            orders = [tuple(self.order(s, kind)) for s in range(self.p)]
            usual = Counter(orders).most_common(1)[0][0]
            if odd := [s for s, order in enumerate(orders) if order != usual]:
                return odd[0], name, orders.index(usual)
        return None

    @property
    def drained(self) -> bool:
        """Whether stage 0, the last one to let go of a micro-batch, holds none before its list ends."""
        return 0 in list(accumulate(1 if kind == "F" else -1 for kind in self.kinds[0]))[:-1]

    mixed = property(lambda self: [s for s, kinds in enumerate(self.kinds) if "BF" in kinds])
    stage = property(lambda self: self.apart[0] if self.slow and self.apart else [*self.mixed, 0][0])


# -- what is said --

ONE_BY_ONE = "Each micro-batch comes back before the next one sets out: one stage works, all others wait."
APART = (
    "Stage {stage} takes its {apart[1]} in another order than stage {apart[2]}: it waits for one that comes late, "
    "while others are there. All stages take them in one order."
)
AGAIN = "The pipeline is filled and drained more than once: each time costs p - 1 turns. Fill it with all forwards."
TOO_SOON = "A backward comes before a forward. GPipe fills first, and drains when all forwards are done."
NEXT = "That is 1F1B: as fast, and it holds less. It is the next exercise; GPipe is asked here."
WHYS_SLOW = [
    Rule("one by one", lambda f: f.schedule == naive(f.p, f.m), ONE_BY_ONE),
    Rule("another order", lambda f: f.apart, APART),
    Rule("filled again", lambda f: f.drained, AGAIN),
    Rule("too soon", always, TOO_SOON),
]
WHYS_MIXED = [Rule("1F1B", lambda f: f.schedule == one_f_one_b(f.p, f.m), NEXT), Rule("too soon", always, TOO_SOON)]
MIXED = "all forwards, then all backwards on stage {stage}, from {call}"
TESTS = [*legal(), fast(WHYS_SLOW), Test("mixed", lambda f: f.mixed, MIXED, "{row}", WHYS_MIXED)]
