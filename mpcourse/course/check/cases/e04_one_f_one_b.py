"""What e04_one_f_one_b is asked: schedules that run, in GPipe's time, and hold no more than 1F1B does."""

from functools import cached_property

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.schedules import SIZES, Scheduled, each_size, fast, legal
from mpcourse.course.check.rules import Rule, Test, always
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short
from mpcourse.pipeline import naive


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    # With two stages many a list is GPipe's too.
    each_size(answer, Facts, TESTS, sorted(SIZES, key=lambda size: size != (3, 6)))


class Facts(Scheduled):
    """What one_f_one_b returned. enough: how many forwards each stage needs before its first backward, and may hold."""

    name = "one_f_one_b"
    enough = property(lambda self: [min(self.m, self.p - s) for s in range(self.p)])

    @cached_property
    def unsorted(self) -> list[tuple[int, str, list[int]]]:
        """(stage, what it does not take in order, the order)."""
        kinds = (("F", "forwards"), ("B", "backwards"))
        orders = [(s, name, self.order(s, kind)) for kind, name in kinds for s in range(self.p)]
        return [found for found in orders if found[2] != sorted(found[2])]

    @cached_property
    def stage(self) -> int:
        stages = range(self.p)
        if not self.slow:
            return next((s for s in stages if self.held[s] > self.enough[s]), 0)
        counts = [s for s in stages if self.ahead[s] != self.enough[s]]
        turns = [kinds[ahead - 1 : len(kinds) - ahead + 1] for kinds, ahead in zip(self.kinds, self.ahead, strict=True)]
        uneven = [s for s in stages if "FF" in turns[s] or "BB" in turns[s]]
        return [*counts, *[s for s, *_ in self.unsorted], *uneven, 0][0]

    its_ahead = property(lambda self: self.ahead[self.stage])
    its_enough = property(lambda self: self.enough[self.stage])
    its_held = property(lambda self: self.held[self.stage])
    behind = property(lambda self: self.p - 1 - self.stage)
    forwards = property(lambda self: counted(self.its_ahead, "forward"))
    first_forwards = property(lambda self: counted(self.ahead[0], "forward"))
    last_ahead = property(lambda self: self.ahead[-1])
    allowed = property(lambda self: counted(self.its_enough, "micro-batch"))
    numbers = property(lambda self: short(self.unsorted[0][2], 30).strip("[]"))


# -- what is said --

OTHER_WAY = (
    "{reason} Stage 0 runs {first_forwards} before its first backward, the last stage {last_ahead}. It is the other "
    "way round: the first stage needs the most, not the last, for its first gradient comes back last."
)
NONE_AHEAD = (
    "No forwards ahead: each micro-batch comes back before the next sets out. Stage s needs some forwards under way to "
    "keep the stages after it busy; how many stages are those?"
)
TOO_FEW = (
    "Stage {stage} runs {forwards} before its first backward, and then waits: that gradient comes back after the "
    "{behind} stages behind it have had their turn. It has time for {its_enough}."
)
TOO_MANY = (
    "Stage {stage} runs {forwards} before its first backward; {its_enough} would do, the last of them in a pair with "
    "that backward. It needs as many ahead as stages come after it: {behind}."
)
UNSORTED = (
    "Stage {stage} takes its {unsorted[0][1]} in the order {numbers}. Micro-batches come in order from the neighbour: "
    "a stage that takes a later one first waits for it."
)
TURNS = "After the forwards ahead it is one forward, one backward, in turns, until no forward is left."
GPIPE = "That is GPipe's list: nothing is let go before all forwards are done. Alternate sooner."
GROWS = "Once it alternates, one forward is followed by one backward: two forwards in a row let the number grow."
WHYS_STUCK = [Rule("other way", lambda f: f.ahead == sorted(f.ahead) and f.ahead[0] < f.ahead[-1], OTHER_WAY)]
WHYS_SLOW = [
    Rule("one at a time", lambda f: f.schedule == naive(f.p, f.m), NONE_AHEAD),
    Rule("too few ahead", lambda f: f.its_ahead < f.its_enough, TOO_FEW),
    Rule("too many ahead", lambda f: f.its_ahead > f.its_enough, TOO_MANY),
    Rule("unsorted", lambda f: f.unsorted, UNSORTED),
    Rule("no turns", always, TURNS),
]
WHYS_MUCH = [
    Rule("GPipe's", lambda f: f.kinds[f.stage] == "F" * f.m + "B" * f.m and f.m > 1, GPIPE),
    Rule("too many ahead", lambda f: f.its_ahead > f.its_enough, TOO_MANY),
    Rule("two forwards", always, GROWS),
]
HOLDS = "at most {allowed} in flight on stage {stage}, from {call}"
MUCH = Test("much", lambda f: f.its_held > f.its_enough, HOLDS, "{its_held}: it runs {row}", WHYS_MUCH)
TESTS = [*legal(WHYS_STUCK), fast(WHYS_SLOW), MUCH]
