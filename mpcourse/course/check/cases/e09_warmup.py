"""What e09_warmup is asked: the rate of each step, at every corner of the curve and between them."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.calls import ROUNDED, Called, is_float, one_by_one, programs, returned
from mpcourse.course.check.rules import Test, always, demand
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage

NAME = "learning_rate"

# -- inputs --


class Setting(NamedTuple):
    """The arguments but for the step."""

    steps_per_epoch: int
    batch: float
    base_batch: int
    base_rate: float
    warmup_epochs: int
    milestones: tuple[int, ...]

    @property
    def warmup_steps(self) -> int:
        return self.warmup_epochs * self.steps_per_epoch

    @property
    def peak(self) -> float:
        return self.base_rate * self.batch / self.base_batch

    def passed(self, step: float) -> int:
        return sum(step >= epoch * self.steps_per_epoch for epoch in self.milestones)

    def decayed(self, step: float) -> float:
        return self.peak * 0.1 ** self.passed(step)

    def on_line(self, part: float) -> float:
        """Return the rate where this part of the warm-up is over."""
        return self.base_rate + (self.peak - self.base_rate) * part


# The task's own example first. Each tells some wrong rule from the right one.
FIXED = [
    Setting(100, 1024, 256, 0.1, 5, (30, 60)),
    Setting(5, 96, 32, 0.2, 2, ()),
    Setting(4, 128, 32, 0.3, 3, (4, 7, 9)),
    Setting(6, 64, 64, 0.5, 2, (3,)),  # nothing to scale
    Setting(3, 640, 32, 0.05, 0, (2, 4)),  # no warm-up
    Setting(5, 16, 32, 0.4, 2, (3,)),  # a smaller batch: the line goes down
    Setting(3, 96, 32, 0.1, 2, (2, 5)),  # a milestone where the warm-up ends
    Setting(1, 256, 32, 0.1, 4, (6,)),
]


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    cases = [(s, step) for s in FIXED for step in _steps(s)]
    draw = drawing()
    for _ in range(20):  # ranks draw numbers of their own, and make equally many calls, and meet after each
        warmup = draw.randint(0, 3)
        milestones = tuple(sorted(draw.sample(range(warmup + 1, warmup + 9), draw.randint(0, 3))))
        epoch, batch = draw.randint(1, 9), draw.choice((48, 64, 200, 1000))
        s = Setting(epoch, batch, 48, draw.uniform(0.01, 1), warmup, milestones)
        cases.append((s, draw.randrange(12 * epoch)))
    one_by_one(answer, [functools.partial(_one, given=given) for given in cases])


def _steps(s: Setting) -> list[int]:
    """Choose the first steps, steps around every corner, and one on each stretch; ranks wait for each call."""
    corners = [s.warmup_steps, *(epoch * s.steps_per_epoch for epoch in s.milestones)]
    near = {corner + off for corner in corners for off in (-1, 0, 1)}
    epoch = s.steps_per_epoch
    inside = {s.warmup_steps // 2, s.warmup_steps // 3, corners[-1] + epoch // 2, corners[-1] + 2 * epoch}
    return sorted(step for step in {0, 1} | near | inside if step >= 0)


def _one(answer: Answer, given: tuple[Setting, int]) -> None:
    got = returned(lambda: _call(answer, *given), ZeroDivisionError)
    demand(TESTS, Facts(answer, given, got))


def _call(answer: Answer, s: Setting, step: int) -> Any:
    return answer.call(NAME, step, *s[:-1], list(s.milestones))


# -- facts --


def _right(s: Setting, step: int) -> float:
    return s.on_line(step / s.warmup_steps) if step < s.warmup_steps else s.decayed(step)


class Facts(Called):
    """The rate of one step: `given` is (setting, step)."""

    right = staticmethod(_right)
    call = staticmethod(lambda answer, s, step: float(_call(answer, s, step)))
    same = staticmethod(functools.partial(math.isclose, rel_tol=1e-9))
    probes = property(lambda self: [(s, step) for s in (self.given[0], *FIXED[1:4]) for step in _steps(s)])
    step = property(lambda self: self.given[1])
    warming = property(lambda self: _warming(*self.given))
    # What was seen within the warm-up, or after it, as this step is.
    stretch = property(lambda self: [row for row in self.seen if _warming(*row[0]) == self.warming])
    arguments = property(lambda self: ", ".join(map(str, (self.step, *self.given[0][:-1], [*self.given[0][-1]]))))


def _warming(s: Setting, step: int) -> bool:
    return step < s.warmup_steps


# -- facts: rates by wrong rules, of a whole training, of its warm-up, and of the time after that --

Way = Callable[[Setting, int], float]


def _with(batch: Callable[[Setting], float]) -> Way:
    """Return the way that is right but for the peak, as if the batch were another one."""
    return lambda s, step: _right(s._replace(batch=batch(s)), step)


PEAKS: dict[str, Way] = {
    "The rate is not scaled at all: k times the batch takes k times the rate.": _with(lambda s: s.base_batch),
    "That is square-root scaling. The rule of this exercise is linear: base_rate * batch / base_batch.": (
        _with(lambda s: math.sqrt(s.batch * s.base_batch))
    ),
    "The ratio is upside down: a larger batch takes a larger rate, base_rate * batch / base_batch.": (
        _with(lambda s: s.base_batch**2 / s.batch)
    ),
    "That multiplies by the batch itself. The ratio batch / base_batch is what counts.": (
        _with(lambda s: s.base_batch * s.batch)
    ),
    "The ratio is an int there: // drops what is behind the point. A batch 1.5 times as large takes 1.5 times the "
    "rate.": _with(lambda s: s.batch // s.base_batch * s.base_batch),
}
WARMING: dict[str, Way] = {
    "There is no warm-up: until warmup_epochs are over the rate grows from base_rate to the peak.": (
        lambda s, step: s.peak
    ),
    "The rate stays at base_rate and then jumps. It grows in a straight line, with each step.": (
        lambda s, step: s.base_rate
    ),
    "That warm-up begins with 0, where nothing is learned. It begins with base_rate: base_rate + (peak - base_rate) * "
    "step / steps.": lambda s, step: s.peak * step / s.warmup_steps,
    "That warm-up begins near 0. It begins with base_rate, in step 0.": (
        lambda s, step: s.peak * (step + 1) / s.warmup_steps
    ),
    "The rate changes with each epoch only. It grows with each step: use step itself, not step // steps_per_epoch.": (
        lambda s, step: s.on_line(step // s.steps_per_epoch / s.warmup_epochs)
    ),
    "One step ahead: step 0 has base_rate, so it is step / steps, and not (step + 1) / steps.": (
        lambda s, step: s.on_line((step + 1) / s.warmup_steps)
    ),
    "The peak comes one step early: the first step after the warm-up has it, and not the last step within it. Divide "
    "by the number of steps, not by one less.": (lambda s, step: s.on_line(step / (s.warmup_steps - 1))),
    "That line goes from base_rate to base_rate + peak. What is added is a part of peak - base_rate.": (
        lambda s, step: s.base_rate + s.peak * step / s.warmup_steps
    ),
    "That grows by a factor in each step. The warm-up is a straight line: add in each step the same.": (
        lambda s, step: s.base_rate * (s.peak / s.base_rate) ** (step / s.warmup_steps)
    ),
    "warmup_epochs are epochs: the warm-up has warmup_epochs * steps_per_epoch steps.": (
        lambda s, step: s.on_line(step / s.warmup_epochs) if step < s.warmup_epochs else s.decayed(step)
    ),
    "That is the line the other way round: from the peak down to base_rate.": (
        lambda s, step: s.on_line(1 - step / s.warmup_steps)
    ),
}
DECAYING: dict[str, Way] = {
    "The rate does not decay: at each milestone it becomes a tenth.": lambda s, step: s.peak,
    "Each milestone divides by 10, the second one again: 0.1 ** (milestones passed), not 0.1 once.": (
        lambda s, step: s.peak * (0.1 if s.passed(step) else 1)
    ),
    "One step late: the first step of a milestone's epoch has the lower rate already (>=, not >).": (
        lambda s, step: s.decayed(step - 1)
    ),
    "One epoch late: epoch 30 begins with step 30 * steps_per_epoch, and that step is the first with the lower rate.": (
        lambda s, step: s.decayed(step - s.steps_per_epoch)
    ),
    "Milestones are epochs, and step counts steps: compare step with epoch * steps_per_epoch.": (
        lambda s, step: s.peak * 0.1 ** sum(step >= epoch for epoch in s.milestones)
    ),
    "Milestones count from the beginning of training, not from the end of the warm-up.": (
        lambda s, step: s.decayed(step - s.warmup_steps)
    ),
    "After a milestone the peak is what decays, and not base_rate: the batch is still a large one.": (
        lambda s, step: s.base_rate * 0.1 ** s.passed(step) if s.passed(step) else s.peak
    ),
    "Is the rate divided by 10 in the milestone's own step, or epoch, only? It stays low from then on.": (
        lambda s, step: s.peak * (0.1 if step // s.steps_per_epoch in s.milestones else 1)
    ),
    "After n milestones the rate is peak * 0.1 ** n. That is peak / (10 * n).": (
        lambda s, step: s.peak / (10 * s.passed(step)) if s.passed(step) else s.peak
    ),
    "That subtracts a tenth of the peak at each milestone. Multiply by 0.1.": (
        lambda s, step: s.peak * (1 - 0.1 * s.passed(step))
    ),
    "That halves at each milestone. Divide by 10.": lambda s, step: s.peak * 0.5 ** s.passed(step),
    "After the warm-up the rate is scaled: base_rate * batch / base_batch.": (
        lambda s, step: s.base_rate * 0.1 ** s.passed(step)
    ),
}

# -- what is said --

RATE = f"{{want:.6g}} from {NAME}({{arguments}})", "{got:.9g}"
WHYS = {
    **ROUNDED,
    **programs(PEAKS),
    "A rate is a finite number: is there a division by 0, or a power of something large?": lambda f: (
        not math.isfinite(f.got)
    ),
}
WHYS_WARMING = {
    **WHYS,
    **programs(WARMING, lambda f: f.stretch),
    "Step 0 has base_rate: the warm-up begins with the rate of the small batch.": lambda f: f.step == 0,
    "Within the warm-up: base_rate + (peak - base_rate) * step / (steps of the warm-up).": always,
}
WHYS_DECAYING = {
    **WHYS,
    **programs(DECAYING, lambda f: f.stretch),
    "After the warm-up: the peak, base_rate * batch / base_batch, times 0.1 for each milestone that has begun.": always,
}
WHYS_TYPE = {
    "With warmup_epochs=0 the warm-up has no steps: do not divide by their number, return the peak at once.": (
        lambda f: f.failed
    ),
    "Nothing came back: does every branch return a rate?": lambda f: f.got is None,
    "One float is asked: the rate.": always,
}
TESTS = [
    Test("no float", lambda f: not is_float(f.got), RATE[0], "{shown}", WHYS_TYPE),
    Test("in the warm-up", lambda f: f.warming and not f.same(f.got, f.want), *RATE, WHYS_WARMING),
    Test("after the warm-up", lambda f: not f.same(f.got, f.want), *RATE, WHYS_DECAYING),
]
