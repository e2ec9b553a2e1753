"""What e15_straggler is asked: how long a rank computes, without any waiting, and which ranks are slow."""

import math
import operator
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_high, median_low
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Finding, each_on_real, each_on_virtual
from mpcourse.course.check.facts.calls import programs
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import Whys, judge, rules, tests
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

SIZES = (3, 2, 4, 5, 1)
DEFAULT = 1.05  # of `slower`


class Draw(NamedTuple):
    """What all ranks draw their inputs from. why: see on_models."""

    seed: int
    why: str = ""


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    each_on_real(answer, comm, [Draw(comm.size)], _compute, _judge_computing)
    each_on_real(answer, comm, [Draw(comm.size)], _find, _judge_finding)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    draws = [Draw(drawing().getrandbits(60))]
    each_on_virtual(answer, comm, draws, _compute, _judge_computing, "", SIZES)
    each_on_virtual(answer, comm, draws, _find, _judge_finding, "", SIZES)


# -- computing_seconds: a step whose clock only its own calls move --


class Step:
    """A step of one rank. All ranks begin it at the same time.

    launch: seconds of the host in compute. right: seconds that the rank computes. order: the calls, but synchronize,
    as in `took`. early: exchange began so many seconds before the GPU had finished.
    """

    def __init__(self, draw: Draw, size: int, rank: int) -> None:
        numbers = random.Random(draw.seed)
        self.now, self.launch = numbers.uniform(100, 900), numbers.uniform(0.002, 0.006)
        self.free_at = self.now + numbers.uniform(0.02, 0.05) * (size > 1)  # busy with earlier work, or idle
        transfer, *works = numbers.uniform(0.03, 0.05), *(numbers.uniform(0.1, 0.3) for _ in range(size))
        self.work, self.exchanging = works[rank], max(works) - works[rank] + transfer
        self.right = self.launch + self.work
        self.order, self.early = "", 0.0

    given = property(lambda self: (self.compute, self.synchronize, self.exchange, self.clock))

    def __repr__(self) -> str:
        return "a step"  # messages show its methods

    def compute(self) -> None:
        self.order += "C"
        self.now += self.launch
        self.free_at = max(self.now, self.free_at) + self.work

    def synchronize(self) -> None:
        self.now = max(self.now, self.free_at)

    def exchange(self) -> None:
        self.order += "X"
        self.early = self.free_at - self.now
        self.now += self.exchanging

    def clock(self) -> float:
        self.order += "T"
        return self.now

    def took(self, order: str) -> float:
        """Make calls in this order, and return the time between the first and the last reading of the clock.

        order: such as "SCX": C is compute, S synchronize, X exchange and T clock. One T: that reading is returned.
        """
        calls = dict(zip("CSXT", self.given, strict=True))
        readings = [now for name in order if (now := calls[name]()) is not None]
        return readings[-1] - (readings[0] if readings[1:] else 0)


class Timed(NamedTuple):
    """What computing_seconds returned on a rank, and what the step saw of it."""

    got: Any
    order: str
    early: float


def _compute(draw: Draw, own: Answer, comm: Any) -> Timed:
    step = Step(draw, comm.size, comm.rank)
    got = own.call("computing_seconds", *step.given)
    return Timed(got, step.order, step.early)


def _judge_computing(draw: Draw, everyone: Sequence[Timed]) -> Finding | None:
    return judge(COMPUTING, *[Computing(rank, draw, everyone) for rank in range(len(everyone))])


@dataclass(frozen=True)
class Computing:
    """What computing_seconds did on `rank`."""

    rank: int
    draw: Draw
    everyone: Sequence[Timed]

    got = property(lambda self: self.everyone[self.rank].got)
    order = property(lambda self: self.everyone[self.rank].order)
    early = property(lambda self: self.everyone[self.rank].early)
    size = property(lambda self: len(self.everyone))
    right = property(lambda self: Step(self.draw, self.size, self.rank).right)
    seen = property(lambda self: [((self.draw, self.size, r), timed.got) for r, timed in enumerate(self.everyone)])
    same = staticmethod(lambda got, value: isinstance(got, float) and math.isclose(got, value, rel_tol=1e-9))

    computes = property(lambda self: self.order.count("C"))
    exchanges = property(lambda self: self.order.count("X"))
    not_once = property(lambda self: (self.computes, self.exchanges) != (1, 1))
    no_exchange = property(lambda self: self.exchanges == 0)
    many_exchanges = property(lambda self: self.exchanges > 1)
    exchange_first = property(lambda self: self.order.index("X") < self.order.index("C"))
    too_early = property(lambda self: self.early > 0)
    no_float = property(lambda self: not isinstance(self.got, float))
    wrong = property(lambda self: not self.same(self.got, self.right))
    no_clock = property(lambda self: "T" not in self.order)
    rounded = property(lambda self: self.got in [round(self.right, digits) for digits in range(12)])

    # What sentences show.

    shown = property(lambda self: short(self.got))
    place = property(lambda self: f"rank {self.rank} of {self.size}")


def _took(*orders: str, factor: float = 1.0) -> list[Callable[[Draw, int, int], float]]:
    """Return programs that make their calls in these orders; see Step.took."""
    return [lambda *given, order=order: factor * Step(*given).took(order) for order in orders]


# -- slow_ranks --

Rows = Sequence[Sequence[float]]  # by rank, the seconds of its steps
Found = Mapping[int, float] | None
Way = Callable[[Rows, float, int], Found]  # what a wrong program finds on a rank


class Case(NamedTuple):
    """What all ranks have measured. named: the `slower` that they ask for; empty: they name none."""

    rows: Rows
    named: tuple[float, ...] = ()

    def given(self, rank: int) -> tuple[Any, ...]:
        return self.rows, *(self.named or (DEFAULT,)), rank


def _cases(seed: int, size: int) -> list[Case]:
    draw, ranks = random.Random(seed), range(size)

    def row(steps: int, factor: float = 1.0, spread: float = 0.02) -> list[float]:
        return [0.2 * factor * draw.uniform(1 - spread, 1 + spread) for _ in range(steps)]

    slow, saving = draw.sample(range(max(size, 2)), 2)
    checkpoint = [row(7, 1.2 if r == slow else 1.0) for r in ranks]
    checkpoint[saving % size][draw.randrange(7)] += 4.0
    several = [row(3, factor) for factor in draw.sample((1.0, 1.0, 1.5, 2.0, 1.0)[:size], size)]
    equal = [[1.0, 1.25, 1.0]] * (size - 1) + [[1.25, 1.0, 1.25]]  # the ratios are 1 and 1.25 on 3 or more ranks
    return [
        Case([row(5, 1.3 if r == slow else 1.0) for r in ranks]),
        Case(checkpoint),
        *(Case([row(steps, spread=0.6) for _ in ranks]) for steps in (4, 1, 6, 9)),
        *(Case(several, (slower,)) for slower in (1.75, 1.15)),
        *(Case(equal, (slower,)) for slower in (1.25, 1.0)),
        Case([draw.sample((n - 1, n, n, n + 1, 9 * n), 5) for n in draw.sample(range(2, 20), size)]),  # ints
    ]


def _slow(rows: Rows, slower: float, rank: int = 0) -> dict[int, float]:
    """Return what slow_ranks must return on a rank."""
    usual = np.median(rows, axis=1)
    return _above(usual / np.median(usual), slower)


def _above(ratios: Any, slower: float) -> dict[int, float]:
    return {r: float(ratio) for r, ratio in enumerate(ratios) if ratio > slower}


def _find(draw: Draw, own: Answer, comm: Any) -> list[Any]:
    """Return what slow_ranks returned in each case."""
    given = [(list(case.rows[comm.rank]), *case.named) for case in _cases(draw.seed, comm.size)]
    return [own.call("slow_ranks", comm, *each) for each in given]


def _judge_finding(draw: Draw, everyone: Sequence[list[Any]]) -> Finding | None:
    cases, ranks = _cases(draw.seed, len(everyone)), range(len(everyone))
    return judge(FINDING, *[Finds(rank, number, cases, everyone) for number in range(len(cases)) for rank in ranks])


@dataclass(frozen=True)
class Finds:
    """What slow_ranks returned on `rank` in case `number`."""

    rank: int
    number: int
    cases: Sequence[Case]
    everyone: Sequence[list[Any]]

    case = property(lambda self: self.cases[self.number])
    got = property(lambda self: self.everyone[self.rank][self.number])
    want = property(lambda self: _slow(*self.case.given(self.rank)))
    no_dict = property(lambda self: not isinstance(self.got, Mapping))
    wrong = property(lambda self: not self.same(self.got, self.want))

    @property
    def seen(self) -> list[tuple[tuple[Any, ...], Any]]:
        """The results of all ranks in all cases."""
        rows = enumerate(self.everyone)
        return [(case.given(r), got) for r, row in rows for case, got in zip(self.cases, row, strict=True)]

    @staticmethod
    def same(got: Any, value: Found) -> bool:
        if not (isinstance(got, Mapping) and isinstance(value, Mapping)):
            return got is value
        return got.keys() == value.keys() and all(
            isinstance(got[r], float | int) and math.isclose(got[r], value[r], rel_tol=1e-9) for r in value
        )

    @property
    def shorter(self) -> str:
        """The shorter dtype whose rounding explains what is wrong with the ratios; empty for none."""
        got = {} if self.no_dict else self.got
        if got.keys() != self.want.keys() or not all(isinstance(n, float | np.floating) for n in got.values()):
            return ""
        return shorter_dtype([float(got[r]) for r in self.want], [*self.want.values()])

    # What sentences show.

    shown = property(lambda self: short(self.got, 120))

    @property
    def asked(self) -> str:
        medians = ", ".join(f"{seconds:.4g}" for seconds in np.median(self.case.rows, axis=1))
        slower = f" and slower={self.case.named[0]}" if self.case.named else ""
        return f"{self.want} on rank {self.rank} of {len(self.everyone)}, for medians of {medians} s{slower}"


# What wrong programs find


def _finds(
    of: Callable[[Any], Any] = np.median,
    whole: Callable[[Any], Any] = np.median,
    value: Callable[[float, float], float] = operator.truediv,
    slow: Callable[[float, float], bool] = operator.gt,
) -> Way:
    def program(rows: Rows, slower: float, rank: int) -> Found:
        own = [float(of(row)) for row in rows]
        usual = float(whole(own))
        return {r: value(seconds, usual) for r, seconds in enumerate(own) if slow(seconds / usual, slower)}

    return program


def _ratios(ratios: Callable[[np.ndarray, np.ndarray], Any]) -> Way:
    """Return a program with these ratios. ratios: of all steps by rank, and of the median of each rank."""
    return lambda rows, slower, rank: _above(ratios(np.array(rows), np.median(rows, axis=1)), slower)


# -- what is said --

WHYS_NUMBER = rules(
    no_exchange="Without exchange(), this rank trains with its own gradients alone, and other ranks wait for it. Run "
    "the whole step, and measure a part of it.",
    many_exchanges="Each call of exchange() waits for all ranks and sends all gradients. Call it once, after "
    "compute().",
    otherwise="compute() makes the gradients of the batch, and each further call adds them once more. A benchmark "
    "may warm up before it measures, but this is a step of training.",
)
ORDERS: dict[str, Any] = {
    "That is the time of launching: compute() returns before the GPU has finished. Call synchronize() before you "
    "read the clock the second time.": _took("TCTSX"),
    "Those are milliseconds. The clock gives seconds, and seconds are asked.": _took("STCSTX", factor=1000),
    "That has the other sign: subtract the earlier reading from the later one.": _took("STCSTX", factor=-1),
    "Earlier work is in it, too. When the step begins, the GPU may still be busy with the step before. Call "
    "synchronize() first, and then read the clock.": _took("TCSTX", "TSCSTX", "TSCTSX"),
    "exchange() is in it, too. All ranks leave exchange() together with the slowest one, so this time does not tell "
    "which rank is slow. Read the clock the second time before exchange().": _took("STCSXT", "TCSXT", "TSCSXT"),
    "That is how long exchange() took: this rank waited for slower ones, and gradients were sent. Measure how long "
    "the rank computes.": _took("SCSTXT"),
    "The clock was first read after compute() had returned, so the time of launching is missing. Read the clock "
    "before compute().": _took("SCTSTX", "CTSTX"),
    "That is a reading of the clock. How long something took is the difference of two readings.": _took("SCSTX"),
}
WHYS_SECONDS: Whys = [
    *rules(
        no_clock="clock() was not called, so this is another clock's time. Call clock() where you read the time.",
        rounded="That is the right time, rounded. Rounding is for printing.",
    ),
    programs(ORDERS),
    "The time begins when the GPU has finished earlier work and compute() is called. It ends when the GPU has "
    "finished what compute() started, before exchange().",
]
COMPUTING = tests(
    not_once=(
        "one call of compute() and one of exchange() on {place}",
        "{computes} of compute() and {exchanges} of exchange()",
        WHYS_NUMBER,
    ),
    exchange_first=(
        "compute() before exchange() on {place}",
        "exchange() before compute()",
        "exchange() averages the gradients that compute() makes, so compute() comes first.",
    ),
    too_early=(
        "exchange() to begin after the GPU has finished the work of compute(), on {place}",
        "it began {early:.3g} s before that",
        "compute() only starts the work, and returns before the GPU has finished. So exchange() averages gradients "
        "that are not complete. Call synchronize() before exchange().",
    ),
    no_float=("{right!r} s on {place}, a float", "{shown}", "Return the seconds as one float."),
    wrong=("{right!r} s on {place}", "{shown} s", WHYS_SECONDS),
)

RIGHT = "These are the right ranks, but their values are"
FOUND: dict[str, Any] = {
    "That takes one of the two values in the middle. The median of an even number of values is their mean.": [
        *(_finds(one, whole) for one in (median_low, median_high) for whole in (one, np.median)),
        *(_finds(whole=one) for one in (median_low, median_high)),
    ],
    "That takes the mean of a rank's steps. Then a single slow step, such as one that writes a checkpoint, makes its "
    "rank slow. Take the median.": [_finds(np.mean, whole) for whole in (np.mean, np.median)],
    "That takes one step of each rank, the slowest or the fastest. The slowest may be one that writes a checkpoint, "
    "and the fastest says little about the others. Take the median.": [
        _finds(np.max),
        _finds(np.min),
        _finds(np.min, np.min),
    ],
    "That leaves out the first step. Take the median of all steps: it hardly changes if a single one is slow.": (
        _finds(lambda row: np.median(row[1:] or row))
    ),
    "That compares with the fastest rank. If one rank is fast, all others seem to be slow. Compare with the median "
    "of all ranks.": _finds(whole=np.min),
    "That compares with the mean of all ranks, which a slow rank makes larger. Take the median.": (
        _finds(whole=np.mean)
    ),
    "That compares with the median of the other ranks. Take the median of all ranks, with the rank itself.": (
        _ratios(lambda rows, own: [own[r] / np.median(np.delete(own, r)) for r in range(len(own)) if len(own) > 1])
    ),
    "That compares with the median of all steps of all ranks. Take the median of each rank's steps, and then the "
    "median of these medians.": _ratios(lambda rows, own: own / np.median(rows)),
    "That takes a ratio for each step, and then the median of the ratios. Take the median of a rank's steps first, "
    "and then one ratio.": _ratios(lambda rows, own: np.median(rows / np.median(rows, axis=0), axis=1)),
    "A rank is slow if its ratio is more than `slower`. Here a ratio is equal to it.": _finds(slow=operator.ge),
    f"That compares with {DEFAULT}, which is only the default. The caller may ask for another `slower`.": (
        _finds(slow=lambda ratio, slower: ratio > DEFAULT)
    ),
    "Ranks that are not slow are in it, too. A rank is slow only if its ratio is more than `slower`.": (
        _finds(slow=lambda ratio, slower: True)
    ),
    "Only the slowest rank is in it. There may be several slow ranks, and all of them are asked.": (
        lambda *given: dict(sorted(_slow(*given).items(), key=lambda item: -item[1])[:1])
    ),
    "Only rank 0 has found the slow ranks. All ranks have to return the same dict: gather brings the medians to one "
    "rank, allgather to all.": [
        lambda rows, slower, rank: None if rank else _slow(rows, slower),
        lambda rows, slower, rank: {} if rank else _slow(rows, slower),
    ],
    "Each rank has only itself in its dict. All ranks return the same dict, with all slow ranks.": (
        lambda rows, slower, rank: {r: ratio for r, ratio in _slow(rows, slower).items() if r == rank}
    ),
    "The keys are places in a sorted list. allgather returns a list in the order of the ranks: number its elements "
    "before you sort them.": [
        _ratios(lambda rows, own: np.sort(own) / np.median(own)),
        _ratios(lambda rows, own: np.sort(own)[::-1] / np.median(own)),
    ],
    f"{RIGHT} percents, or ratios minus 1. A ratio is asked, which is 1 for the usual time.": [
        _finds(value=lambda own, usual: own / usual - 1),
        _finds(value=lambda own, usual: 100 * own / usual),
        _finds(value=lambda own, usual: 100 * (own / usual - 1)),
    ],
    f"{RIGHT} seconds. Divide by the median of all ranks.": [
        _finds(value=lambda own, usual: own),
        _finds(value=lambda own, usual: own - usual),
    ],
    f"{RIGHT} inverse. Divide the rank's time by the usual one.": _finds(value=lambda own, usual: usual / own),
    f"{RIGHT} rounded. Rounding is for printing.": [
        _finds(value=lambda own, usual, digits=digits: round(own / usual, digits))  # type: ignore[misc]
        for digits in range(7)
    ],
}
WHYS_FOUND: Whys = [
    *rules(
        shorter="Right to some digits: numbers were in {shorter} on their way. Python's floats, and float64, have 16."
    ),
    programs(FOUND),
    *rules(no_dict="A dict is asked: its keys are the slow ranks, and its values are their ratios."),
    "A rank's usual time is the median of its own steps. Its ratio is this time, divided by the median of the usual "
    "times of all ranks, and the rank is slow if its ratio is more than `slower`.",
]
FINDING = tests(wrong=("{asked}", "{shown}", WHYS_FOUND))
