"""What e15_interval is asked: Young's interval, and when a job with given failures is done."""

import functools
import itertools
import math
import numbers
import operator
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.explain import explanation, gives
from mpcourse.course.check.facts.calls import Called, one_by_one, returned
from mpcourse.course.check.rules import Test, demand, rules, tests
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage

DAY = 86_400.0

# -- inputs --

JOBS = [  # save, nodes, failures_per_1000_node_days
    (60, 1, 1),
    (60, 1000, 1),
    (30, 16, 6.5),
    (300, 16_384 // 8, 8),  # Llama 3's 16384 GPUs in nodes of 8
    (0.5, 5000, 30),  # so many failures that the interval is 24 s
    (7.25, 12_345, 2.75),
    (600, 12_000, 7),  # a save that takes so long that the best t is longer than M
]
RUNS = [  # work, interval, save, restart, failures: simple ones first, each tells some wrong rule from the right one
    (10, 10, 2, 3, ()),
    (30, 10, 2, 3, ()),
    (25, 10, 2, 3, ()),
    (5, 10, 2, 3, ()),
    (30, 10, 2, 3, (5,)),  # before the first checkpoint
    (30, 10, 2, 3, (15,)),
    (30, 10, 2, 3, (23,)),  # while it saves
    (25, 10, 2, 3, (30,)),  # while it writes the last checkpoint
    (25, 10, 2, 3, (32,)),  # after the end
    (30, 10, 2, 3, (40, 50)),
    (30, 10, 2, 5, (15, 33)),
    (30, 10, 2, 5, (15, 17)),  # during the restart
    (30, 10, 2, 3, (24,)),  # when a checkpoint is finished
    (30, 10, 2, 3, (36,)),  # when the last one is finished
    (30, 10, 2, 5, (15, 20)),  # when the restart is over
    (30, 10, 2, 5, (15, 15)),  # two at once
    (25, 10, 2, 6, (4, 9, 27, 32)),
    (20, 10, 0, 0, (7, 17, 35)),  # saves and restarts that take no time
    (7.5, 2.5, 0.25, 1.25, (3, 3.75, 9, 11.5, 30)),
    (40.25, 6.5, 1.75, 4, (6.5, 20.75, 22, 23.5, 41, 60.25, 90)),
    (3, 8, 1.5, 2.25, (1, 2.5, 4, 11.25, 12)),
]


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    draw = drawing()
    jobs = [*JOBS, *((draw.uniform(1, 900), draw.randint(1, 20_000), draw.uniform(0.5, 20)) for _ in range(10))]
    quarters = [_drawn(lambda low, high: draw.randint(4 * low, 4 * high) / 4, draw) for _ in range(40)]
    fractions = [_drawn(draw.uniform, draw) for _ in range(20)]
    checks = [functools.partial(_one, facts=OfInterval, given=given, table=INTERVAL) for given in jobs]
    runs = [*RUNS, *quarters, *fractions]
    checks += [functools.partial(_one, facts=OfFinish, given=given, table=FINISH) for given in runs]
    one_by_one(answer, checks)


def _drawn(time: Callable[[int, int], float], draw: random.Random) -> tuple:
    """Draw the arguments of finish; time(low, high) draws a time."""
    failures = sorted(time(1, 150) for _ in range(draw.choice((0, 1, 2, 4, 8))))
    return time(1, 80), time(3, 30), time(0, 4), time(0, 12), tuple(failures)


# -- observation --


def _one(answer: Answer, facts: type["OfInterval | OfFinish"], given: tuple, table: Sequence[Test]) -> None:
    errors = (IndexError, StopIteration, ValueError) if facts is OfFinish else ()
    got = returned(lambda: _call(answer, facts.name, *given), *errors)
    demand(table, facts(answer, given, got))


def _call(answer: Answer, name: str, *given: Any) -> Any:
    return answer.call(name, *(list(value) if isinstance(value, tuple) else value for value in given))


class Facts(Called):
    """What a call returned. A subclass names the function, and has the rules by which it may be computed."""

    name: str

    is_number = property(lambda self: isinstance(self.got, numbers.Real) and not isinstance(self.got, bool))
    no_number = property(lambda self: not self.is_number or not math.isfinite(self.got))
    nothing = property(lambda self: self.got is None)
    infinite = property(lambda self: self.is_number and math.isinf(self.got))
    another = property(lambda self: not self.same(self.got, self.want))
    number = property(lambda self: float(self.got))  # as a Fraction has no .7g
    # Of all calls that were seen, their results with the right ones.
    pairs = property(lambda self: [(got, self.right(*given)) for given, got in self.seen])

    @property
    def text(self) -> str:
        """The call, as one reads it."""
        texts = [
            f"[{', '.join(map(_text, value))}]" if isinstance(value, tuple) else _text(value) for value in self.given
        ]
        return f"{self.name}({', '.join(texts)})"


def _text(value: float) -> str:
    return f"{value:.6g}"


# -- how Young's interval may be computed --


@dataclass(frozen=True)
class Interval:
    """How the interval may be computed; by default the right way.

    per_day: the job's failures in a day, from the rate and nodes. day: how long a day is. cut: what is done with the
    mean time between failures, M. formula: of save and M.
    """

    per_day: Callable[[float, int], float] = lambda rate, nodes: rate / 1000 * nodes
    day: float = DAY
    cut: Callable[[float], float] = lambda m: m
    formula: Callable[[float, float], float] = lambda save, m: math.sqrt(2 * save * m)

    def __call__(self, save: float, nodes: int, rate: float) -> float:
        """Return the interval."""
        return self.formula(save, self.cut(self.day / self.per_day(rate, nodes)))


class Mistake:
    """A sentence for the learner, and what a program with this misconception does `instead` of the right thing."""

    def __init__(self, why: str, **instead: Any) -> None:
        self.why, self.instead = why, instead


UNITS = "The units differ: `save`, M and the result are in seconds, and a day has 24 * 3600 of them."
# What a day is taken for; the last two are for a result in hours, and in days.
TOO_SHORT = (1.0, 24.0, 60.0, 1440.0, 3600.0, DAY / 3600**2, 1 / DAY)
IN_INTERVAL = [
    Mistake(
        "That is right for one machine. A job of several stops when any one of them fails: divide M by `nodes`.",
        per_day=lambda rate, nodes: rate / 1000,
    ),
    Mistake(
        "M was multiplied by `nodes`. The more machines a job has, the sooner one of them fails: divide by it.",
        per_day=lambda rate, nodes: rate / 1000 / nodes,
    ),
    Mistake(
        "The interval itself was divided by `nodes`. Divide M by it, under the root.",
        per_day=lambda rate, nodes: rate / 1000 * nodes**2,
    ),
    Mistake(
        "The rate was taken for that of one machine. It is that of 1000 machines together: divide it by 1000.",
        per_day=lambda rate, nodes: rate * nodes,
    ),
    Mistake("That is right for 1000 machines. The job has `nodes` of them.", per_day=lambda rate, nodes: rate),
    Mistake(
        "That takes the probability of a failure in a day for the number of failures. Several may come in a day: the "
        "rates of machines add up.",
        per_day=lambda rate, nodes: 1 - (1 - rate / 1000) ** nodes,
    ),
    *(Mistake(UNITS, day=day) for day in TOO_SHORT),
    Mistake("M was cut to whole seconds: `//` cuts, `/` divides.", cut=math.floor),
    *(
        Mistake(
            "M is the time between two failures, not how many there are: divide a day by the failures in a day.",
            cut=lambda m, day=day: day / m,
        )
        for day in (DAY, DAY**2)
    ),
    *(
        Mistake(
            "The factor 2 belongs under the root: the derivative is 0 where t * t = 2 * save * M.",
            formula=lambda save, m, two=two: two * math.sqrt(save * m),
        )
        for two in (1, 2)
    ),
    *(
        Mistake(
            "`save` was added to the root, or subtracted. The lost share is smallest where t is the root itself.",
            formula=lambda save, m, sign=sign: math.sqrt(2 * save * m) + sign * save,
        )
        for sign in (1, -1)
    ),
    Mistake(
        "That is Daly's formula. Young's is asked: the t for which save / t + t / (2 M) is smallest.",
        formula=lambda save, m: _daly(save, m),
    ),
    Mistake("The root is missing: that is t * t.", formula=lambda save, m: 2 * save * m),
    Mistake(
        "That is the share that the best t loses. Return this t, and let M be the time between two failures, not how "
        "many come in a second.",
        formula=lambda save, m: math.sqrt(2 * save / m),
    ),
]


def _daly(save: float, m: float) -> float:
    ratio = save / (2 * m)
    return math.sqrt(2 * save * m) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save


def ways(way: Callable[..., Any], mistakes: Sequence[Mistake]) -> Iterator[tuple[str, Callable[..., float]]]:
    """Yield programs with one of the mistakes, then those with two, each with what is wrong about it."""
    for number in (1, 2):
        for chosen in itertools.combinations(mistakes, number):
            instead = functools.reduce(operator.or_, (mistake.instead for mistake in chosen))
            if len(instead) == sum(len(mistake.instead) for mistake in chosen):
                yield " ".join(mistake.why for mistake in chosen), way(**instead)


class OfInterval(Facts):
    """What best_interval returned for `given`: (save, nodes, failures_per_1000_node_days)."""

    name = "best_interval"
    right = Interval()
    call = staticmethod(lambda answer, *given: float(_call(answer, "best_interval", *given)))
    same = staticmethod(functools.partial(math.isclose, rel_tol=1e-6))  # a minimum found by a search is right, too
    probes = JOBS
    mistakes = cached_property(lambda self: explanation(ways(Interval, IN_INTERVAL), self.seen, gives(self.same)))
    factors = property(lambda self: [got / want for got, want in self.pairs])
    factor = property(lambda self: self.factors[0])
    constant = property(lambda self: all(math.isclose(f, self.factor, rel_tol=1e-6) for f in self.factors))
    searched = property(lambda self: sum(0.9 < f < 1.1 for f in self.factors) > len(self.factors) / 2)

    @property
    def rounded(self) -> bool:
        """Whether everything is rounded to some digits behind the point, up or down."""
        return any(all(g == round(g, d) and abs(g - w) < 10.0**-d for g, w in self.pairs) for d in range(4))


# -- how the end of a job may be computed --


@dataclass(frozen=True)
class Job:
    """What happens to a job; by default the right thing.

    times: those of failures, from the list that is given, and restart.
    clock: the time of a failure, from its number in that list, and the time of the last restart's end.
    ignores: whether a failure is passed over, from its time, the time now, and that of the last restart's end.
    in_time: whether a checkpoint counts, from when it is finished, the time of the failure, and save.
    keep: the work that is kept after a failure, from what was saved, the part under way, and for how long that ran.
    all_kept: what the job does when a failure keeps all of its work: "end", "restart" and end, or "save" after that.
    resume: the end of a restart, from when the failure came, the part began and would have ended, restart, and save.
    late: when the job is done, from when it is, a failure after that, and restart.
    """

    times: Callable = lambda failures, restart: failures
    clock: Callable = lambda failure, resumed: failure
    ignores: Callable = lambda failure, now, resumed: False
    in_time: Callable = lambda end, failure, save: end <= failure
    keep: Callable = lambda saved, part, ran: saved
    all_kept: str = "restart"
    resume: Callable = lambda failure, began, end, restart, save: failure + restart
    late: Callable = lambda now, failure, restart: now

    def __call__(self, work: float, interval: float, save: float, restart: float, failures: Sequence[float]) -> float:
        """Return when the job is done."""
        now = saved = resumed = 0.0
        waiting = list(self.times(failures, restart))
        running = True
        while running:
            while waiting and self.ignores(waiting[0], now, resumed):
                del waiting[0]
            failure = self.clock(waiting[0], resumed) if waiting else math.inf
            part = min(interval, work - saved)
            end = now + part + save
            if self.in_time(end, failure, save):
                now, saved = end, saved + part
                running = saved < work
                continue
            del waiting[0]
            saved = self.keep(saved, part, failure - now)
            running = saved < work or self.all_kept == "save"
            if running or self.all_kept == "restart":
                now = resumed = self.resume(failure, now, end, restart, save)
        for failure in waiting:
            now = self.late(now, failure, restart)
        return now


TWO_AT_THE_END = "That writes two checkpoints at the end. There is only one, even if the last part is a whole interval."
WITHOUT_FAILURES = [  # when a job is done that no failure stops, from work, interval and save
    (
        "That computes for a whole interval at the end, too. The last part is only what is left of the work.",
        lambda work, interval, save: math.ceil(work / interval) * (interval + save),
    ),
    (
        "That writes checkpoints when the clock shows a multiple of `interval`. Each one comes after `interval` "
        "seconds of computing: saves and restarts shift it.",
        lambda work, interval, save: work + (1 + max(0, math.ceil((work - interval) / (interval - save)))) * save,
    ),
    (
        "That counts `save` as a part of the interval. It comes after `interval` seconds of computing.",
        lambda work, interval, save: work + math.ceil(work / (interval - save)) * save,
    ),
    ("Checkpoints take no time in that result.", lambda work, interval, save: work),
    (
        "The last checkpoint is missing: the job also writes one at the end of its work, and is done after it.",
        lambda work, interval, save: work + (math.ceil(work / interval) - 1) * save,
    ),
    (
        "That writes no checkpoint after a last part that is shorter than an interval. The job writes one, too.",
        lambda work, interval, save: work + work // interval * save,
    ),
    (TWO_AT_THE_END, lambda work, interval, save: work + (work // interval + 1) * save),
    (TWO_AT_THE_END, lambda work, interval, save: work + (math.ceil(work / interval) + 1) * save),
]
SAME_LOSS = [
    (
        "That adds the same loss for each failure. It is half an interval only on average: here it is known when each "
        "failure comes, and what is saved by then.",
        lambda work, interval, save, restart, failures, share=share: (
            work + math.ceil(work / interval) * save + len(failures) * (restart + share * interval)
        ),
    )
    for share in (0.5, 1)
]
GAPS = "That takes the numbers for times between failures. They are times since the start of the job."
IGNORED = "That passes over a failure during a restart. It stops the restart, which begins again at that time."
KEPT = "That keeps what was computed between the last checkpoint and the failure. It was in memory only, and is lost."
UNDER_WAY = "That counts a checkpoint which is still being written when the failure comes. Go on from the one before."
LATE = "That also counts failures that come when the job is done. Stop as soon as all work is saved."
IN_FINISH = [
    Mistake("Failures change nothing in that result.", times=lambda failures, restart: []),
    Mistake("Only the first failure changes that result.", times=lambda failures, restart: failures[:1]),
    Mistake(GAPS, times=lambda failures, restart: itertools.accumulate(failures)),
    Mistake(GAPS, clock=lambda failure, resumed: resumed + failure),
    Mistake(
        "That is right for a clock that stops during restarts. They are a part of the time since the start.",
        times=lambda failures, restart: [failure + i * restart for i, failure in enumerate(failures)],
    ),
    Mistake(IGNORED, ignores=lambda failure, now, resumed: failure < now),
    Mistake(IGNORED, ignores=lambda failure, now, resumed: failure <= resumed and now > 0),
    Mistake(IGNORED, ignores=lambda failure, now, resumed: failure <= now and now > 0),
    Mistake(
        "That passes over a failure which comes just when a checkpoint or a restart ends. It stops the job, too.",
        ignores=lambda failure, now, resumed: failure == now,
    ),
    Mistake(
        "A checkpoint that is finished exactly when the failure comes counts, too.",
        in_time=lambda end, failure, save: end < failure,
    ),
    *(
        Mistake(why, keep=keep, all_kept=all_kept)
        for all_kept in ("end", "restart", "save")
        for why, keep in (
            (KEPT, lambda saved, part, ran: saved + min(part, max(ran, 0))),
            (KEPT, lambda saved, part, ran: saved + max(ran, 0)),
            (UNDER_WAY, lambda saved, part, ran: saved + part if ran >= part else saved),
        )
    ),
    Mistake(UNDER_WAY, in_time=lambda end, failure, save: end - save <= failure),
    Mistake(
        "In that result, each failure sends the job back to its beginning. It goes on from its last checkpoint.",
        keep=lambda saved, part, ran: 0.0,
    ),
    Mistake("A restart takes no time in that result.", resume=lambda failure, began, end, restart, save: failure),
    Mistake(
        "That finishes a restart during which a failure comes, and adds another one. It begins again at the failure.",
        resume=lambda failure, began, end, restart, save: max(failure, began) + restart,
    ),
    Mistake(
        "That forgets the time between the last checkpoint and the failure. Its work is lost, but it has passed.",
        resume=lambda failure, began, end, restart, save: began + restart,
    ),
    Mistake(
        "That begins the restart when the next checkpoint would have been finished. It begins at the failure.",
        resume=lambda failure, began, end, restart, save: end + restart,
    ),
    Mistake(
        "That adds the time of a checkpoint to each restart. A restart takes `restart` seconds in all.",
        resume=lambda failure, began, end, restart, save: failure + restart + save,
    ),
    Mistake(LATE, late=lambda now, failure, restart: failure + restart),
    Mistake(LATE, late=lambda now, failure, restart: now + restart),
]


class OfFinish(Facts):
    """What finish returned for `given`: (work, interval, save, restart, failures)."""

    name = "finish"
    right = Job()
    call = staticmethod(lambda answer, *given: float(_call(answer, "finish", *given)))
    same = staticmethod(functools.partial(math.isclose, rel_tol=1e-9, abs_tol=1e-9))
    probes = RUNS
    quiet = property(lambda self: [(given[:3], got) for given, got in self.seen if not given[-1]])
    without = cached_property(lambda self: explanation(WITHOUT_FAILURES, self.quiet, gives(self.same)))
    mistakes = cached_property(
        lambda self: explanation([*SAME_LOSS, *ways(Job, IN_FINISH)], self.seen, gives(self.same))
    )
    after_the_last = property(lambda self: not isinstance(self.got, ValueError) or "empty" in str(self.got))
    no_failure = property(lambda self: not self.given[-1])
    inexact = property(
        lambda self: all(got % 1 == 0 for got, _ in self.pairs) or all(abs(got - want) < 1 for got, want in self.pairs)
    )
    one_is_right = property(
        lambda self: all(self.same(got, self.right(*given)) for given, got in self.seen if len(given[-1]) < 2)
    )


# -- what is said --

WHYS_TYPE = rules(
    nothing="Nothing came back: is the result returned?",
    infinite="Leave the loop when all work is saved, before it comes to a failure that never happens.",
    otherwise="One number of seconds is asked.",
)
WHYS_INTERVAL = rules(
    rounded="Right, but rounded. Rounding is for printing: return the float itself.",
    mistakes="{mistakes}",
    constant="That is {factor:.4g} times the right interval, for all jobs. Which factor is too much, or missing?",
    searched=(
        "Close to the minimum, for most jobs: was t searched on a grid, or only up to a limit? The minimum lies where "
        "the derivative -save / t**2 + 1 / (2 M) is 0. Solve this for t."
    ),
    otherwise=(
        "First find M, the mean time in seconds until any one of the job's machines fails. Then find the t where the "
        "derivative of the lost share, -save / t**2 + 1 / (2 M), is 0."
    ),
)
WHYS_ERROR = rules(
    no_failure="The list of failures may be empty: then the job runs from its start to its end.",
    after_the_last="The list of failures has an end. After the last one the job runs on until it is done.",
)
WHYS_FINISH = rules(
    inexact=(
        "That is rounded, or a loop goes on by a fixed step, such as a second. Times are any numbers: go from one "
        "event, a checkpoint or a failure, to the next."
    ),
    without="{without}",
    mistakes="{mistakes}",
    no_failure="Without a failure, the job computes for `work` seconds, and saves ceil(work / interval) times.",
    one_is_right=(
        "It is right for one failure, and not for several. After a failure, all checkpoints come later than without "
        "it, and the next failure may come at any time."
    ),
    otherwise=(
        "Keep two numbers: the time now, and how much work is saved. If the next checkpoint is finished before the "
        "next failure, both grow. Otherwise the time becomes that of the failure plus `restart`."
    ),
)
INTERVAL = tests(
    no_number=("a number of seconds from {text}", "{shown}", WHYS_TYPE),
    another=("{want:.7g} from {text}", "{number:.7g}", WHYS_INTERVAL),
)
FINISH = tests(
    failed=("{want:.9g} from {text}", "{shown}", WHYS_ERROR),
    no_number=("a number of seconds from {text}", "{shown}", WHYS_TYPE),
    another=("{want:.9g} from {text}", "{number:.9g}", WHYS_FINISH),
)
