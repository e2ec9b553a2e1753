"""What e08_predict_epoch is asked: seconds of an epoch over a ring, and which mistakes give other numbers."""

import itertools
import math
import numbers
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.explain import explanation, gives, probed
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import Rule, Test, always, demand
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short

Link = tuple[float, float]
FAST, PCIE, ETHERNET = (2e-6, 20e9), (10e-6, 12e9), (50e-6, 118e6)


def time(link: Link, nbytes: float) -> float:
    """Return the seconds of a message."""
    return link[0] + nbytes / link[1]


class Epoch(NamedTuple):
    """The arguments."""

    examples: int
    batch: int
    ranks: int
    nodes: int
    compute: float
    nbytes: int
    inside: Link
    between: Link

    @property
    def step(self) -> int:
        return self.batch * self.ranks

    @property
    def used(self) -> list[Link]:
        return [self.inside] * (self.ranks > self.nodes) + [self.between] * (self.nodes > 1)

    def times(self, nbytes: float) -> list[float]:
        """Return the seconds of a message on each kind of link that the ring uses; of several ranks, one or two."""
        return [time(link, nbytes) for link in self.used]

    def __str__(self) -> str:
        return f"epoch_seconds({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"


# The first one is the tutorial's row of 418 s.
FIXED = [
    Epoch(60_000, 100, 2, 2, 6.72e-3, 7_184_040, PCIE, ETHERNET),
    Epoch(60_000, 100, 2, 1, 6.72e-3, 7_184_040, PCIE, ETHERNET),
    Epoch(60_000, 100, 1, 1, 6.72e-3, 7_184_040, PCIE, ETHERNET),
    Epoch(60_000, 100, 4, 2, 6.72e-3, 7_184_040, PCIE, ETHERNET),
    Epoch(60_001, 100, 4, 1, 6.72e-3, 7_184_040, PCIE, ETHERNET),
    Epoch(1000, 64, 8, 2, 0.25, 102_228_128, FAST, (5e-6, 3e9)),
    Epoch(1000, 64, 6, 6, 0.25, 102_228_128, ETHERNET, FAST),  # one rank on each node: the slow link is not used
    Epoch(5000, 32, 8, 4, 1e-3, 4_000, (90e-6, 1e10), (3e-6, 1e8)),  # short messages: latency decides
    Epoch(5000, 32, 6, 2, 1e-3, 40_000_000, (90e-6, 1e8), (3e-6, 1e10)),  # the link inside is the slower one
    Epoch(50, 100, 3, 3, 0.5, 1, FAST, PCIE),
]


def _drawn(draw: random.Random) -> Epoch:
    nodes = draw.choice((1, 2, 3, 5, 8))

    def link() -> Link:
        return draw.uniform(1e-6, 1e-4), draw.uniform(1e8, 2e10)

    each = draw.choice((1, 2, 3, 4))
    return Epoch(
        draw.randint(500, 100_000), draw.randint(1, 300), nodes * each, nodes, draw.uniform(1e-3, 0.5),
        draw.randint(1_000, 200_000_000), link(), link(),
    )  # fmt: skip


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    draw = drawing()
    cases = [*FIXED, *(_drawn(draw) for _ in range(20))]
    uneven = [FIXED[3]._replace(ranks=ranks, nodes=nodes) for ranks, nodes in ((3, 2), (2, 4), (10, 4))]
    one_by_one(answer, [partial(_one, case=case, cases=cases, tests=TESTS) for case in cases])
    one_by_one(answer, [partial(_one, case=case, cases=cases, tests=REFUSAL) for case in uneven])


# -- observation --


def _one(answer: Answer, case: Epoch, cases: Sequence[Epoch], tests: Sequence[Test]) -> None:
    try:
        got = answer.call("epoch_seconds", *case)
    except (ValueError, ZeroDivisionError) as error:
        got = error
    demand(tests, Facts(answer, case, cases, got))


@dataclass(frozen=True)
class Facts:
    """What epoch_seconds returned for a case, or raised. cases: others to ask for, where that is wrong."""

    answer: Answer
    case: Epoch
    cases: Sequence[Epoch]
    got: Any

    want = property(lambda self: seconds(self.case))
    kind = property(lambda self: type(self.got).__name__)
    shown = property(lambda self: short(self.got))
    is_number = property(lambda self: isinstance(self.got, numbers.Real) and not isinstance(self.got, bool))

    @cached_property
    def seen(self) -> list[tuple[tuple[Epoch], float]]:
        """((case,), seconds) of all cases for which there are any."""
        cases = [(case,) for case in self.cases]
        return probed(self.answer, lambda own, case: float(own.call("epoch_seconds", *case)), cases)

    right = property(lambda self: [case for (case,), got in self.seen if close(got, seconds(case))])
    wrong = property(lambda self: [case for (case,), got in self.seen if not close(got, seconds(case))])
    mistakes = cached_property(lambda self: explanation(_mistakes(), self.seen, gives(close)))
    shares = property(lambda self: [got / seconds(case) for (case,), got in self.seen])
    in_float32 = property(lambda self: shorter_dtype(self.shares, [1.0] * len(self.shares)) == "float32")

    @property
    def digits(self) -> int | None:
        """Digits behind the point, if all that is wrong is rounded to these, up or down."""
        pairs = [(got, seconds(case)) for (case,), got in self.seen]
        return next((d for d in range(7) if all(g == round(g, d) and abs(g - w) < 10.0**-d for g, w in pairs)), None)


def close(a: float, b: float) -> bool:
    """Return whether two numbers of seconds differ by rounding alone."""
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-15)


# -- what is said: which parts give other numbers --


class Part(NamedTuple):
    """One part of the answer: how it is computed, and, of a wrong one, what is wrong about it."""

    value: Callable[..., float]
    why: str = ""


# Of each part the right rule comes first.
STEPS = (
    Part(lambda c: math.ceil(c.examples / c.step)),
    Part(lambda c: c.examples // c.step, "The examples that are left for a last, short step need one, too."),
    Part(lambda c: c.examples / c.step, "There is no part of a step: the last one takes as long as any."),
    Part(
        lambda c: math.ceil(c.examples / c.batch),
        "All ranks together take batch x ranks examples in a step: the more ranks, the fewer steps has an epoch.",
    ),
    Part(lambda c: math.ceil(c.examples / (c.batch * c.nodes)), "The examples are shared by ranks, not by nodes."),
    Part(lambda c: c.examples // c.step + 1, "One step too many where examples divide without a rest."),
    Part(lambda c: 1, "That is one step: an epoch has ceil(examples / (batch x ranks)) of them."),
)
ROUNDS = (
    Part(lambda c: 2 * (c.ranks - 1)),
    Part(
        lambda c: c.ranks - 1, "After ranks - 1 rounds each rank has one sum: as many rounds again carry them to all."
    ),
    Part(lambda c: 2 * c.ranks, "A chunk that has gone round needs no further message: 2 (ranks - 1) rounds."),
    Part(lambda c: c.ranks, "A ring has 2 (ranks - 1) rounds."),
    Part(lambda c: 2 * (c.nodes - 1), "The ring goes through all ranks, not from node to node: 2 (ranks - 1) rounds."),
    Part(lambda c: 2 * math.ceil(math.log2(c.ranks)), "A tree has about lg ranks rounds, a ring 2 (ranks - 1)."),
    Part(lambda c: 2, "A ring has 2 (ranks - 1) rounds, more of them the more ranks there are."),
    Part(lambda c: 1, "A ring has 2 (ranks - 1) rounds, and each has its messages."),
)
SHARES = (
    Part(lambda c: c.nbytes / c.ranks),
    Part(lambda c: c.nbytes, "Each message is a chunk, nbytes / ranks, not all gradients."),
    Part(lambda c: c.nbytes / c.nodes, "There are as many chunks as ranks, not as nodes."),
    Part(lambda c: 8 * c.nbytes / c.ranks, "Bandwidth is in bytes per second here: nothing is to be multiplied by 8."),
    Part(lambda c: 8 * c.nbytes, "Each message is a chunk of bytes: nbytes / ranks, and not in bits."),
    Part(lambda c: 4 * c.nbytes / c.ranks, "nbytes counts bytes already, not numbers of 4 bytes."),
    Part(lambda c: c.nbytes / max(1, c.ranks - 1), "The gradients are cut into as many chunks as there are ranks."),
)
MESSAGES = (
    Part(lambda c, n: max(c.times(n))),
    Part(
        lambda c, n: max(time(c.inside, n), time(c.between, n)),
        "The slower link counts only if a message uses it: with one node none leaves it, with one rank on each none "
        "stays inside.",
    ),
    Part(
        lambda c, n: c.times(n)[-1],
        "Do not take for granted that the link between nodes is the slower one: a round waits for the slowest message.",
    ),
    Part(lambda c, n: time(c.inside, n), "With several nodes some of the messages travel between them."),
    Part(lambda c, n: time(c.between, n), "On one node no message goes between nodes."),
    Part(
        lambda c, n: sum(c.times(n)),
        "All messages of a round travel at the same time: it takes as long as the slowest, not as all together.",
    ),
    Part(lambda c, n: min(c.times(n)), "A round is over when the slowest message has arrived, not the fastest."),
    Part(
        lambda c, n: sum(c.times(n)) / len(c.used),
        "A round is over when the slowest message has arrived: the average of links says nothing.",
    ),
    Part(
        lambda c, n: time(c.inside, n) + (c.times(n)[-1] - time(c.inside, n)) * c.nodes / c.ranks,
        "A round is over when the slowest message has arrived, however many fast ones there are: no average.",
    ),
    Part(
        lambda c, n: max(n / bandwidth for _, bandwidth in c.used),
        "A message takes its latency, too, and a ring has many of them.",
    ),
    Part(
        lambda c, n: max(latency for latency, _ in c.used) + max(n / bandwidth for _, bandwidth in c.used),
        "The slowest message is that of one link: the worse latency and the worse bandwidth may be of two.",
    ),
    Part(
        lambda c, n: max(latency / (2 * c.ranks - 2) + n / bandwidth for latency, bandwidth in c.used),
        "Each of the 2 (ranks - 1) messages has its latency, not only the first.",
    ),
    Part(
        lambda c, n: time(min(c.used, key=lambda link: link[1]), n),
        "The link with less bandwidth need not be the slower one for a short message: compare latency + n / bandwidth.",
    ),
    Part(
        lambda c, n: max(latency + n * bandwidth for latency, bandwidth in c.used),
        "Bytes divided by bytes per second are seconds: divide by the bandwidth.",
    ),
)
WHOLES = (
    Part(lambda c, steps, ring: steps * (c.compute + ring)),
    Part(lambda c, steps, ring: steps * c.compute + ring, "Gradients are summed in every step, not once an epoch."),
    Part(lambda c, steps, ring: steps * max(c.compute, ring), "Nothing is hidden here: first compute, then the sum."),
    Part(
        lambda c, steps, ring: steps * (c.compute / c.ranks + ring),
        "Each rank computes for `compute` seconds in every step, however many there are: what shrinks is the number of "
        "steps.",
    ),
    Part(lambda c, steps, ring: steps * (c.compute * c.ranks + ring), "Ranks compute at the same time, not in turn."),
    Part(lambda c, steps, ring: steps * c.compute, "The sum of gradients takes time, too."),
    Part(lambda c, steps, ring: steps * ring, "Each step also computes."),
    Part(
        lambda c, steps, ring: steps * (c.compute + c.ranks * ring),
        "All ranks send at the same time: a round takes one message's time, not one for each rank.",
    ),
    Part(lambda c, steps, ring: c.compute + steps * ring, "Every step computes, not only the first."),
    Part(lambda c, steps, ring: 1e3 * steps * (c.compute + ring), "The result is in seconds, not in milliseconds."),
)
PARTS = (STEPS, ROUNDS, SHARES, MESSAGES, WHOLES)
RIGHT = [part[0] for part in PARTS]


def seconds(case: Epoch, parts: Sequence[Part] = RIGHT) -> float:
    """Compute the seconds that the parts give for a case."""
    steps, rounds, share, message, whole = (part.value for part in parts)
    ring = rounds(case) * message(case, share(case)) if case.ranks > 1 else 0.0
    return whole(case, steps(case), ring)


def _mistakes() -> Iterator[tuple[str, Callable[[Epoch], float]]]:
    """Yield those with one mistake, then with two, then with three, each with what such a program computes."""
    for mistakes in (1, 2, 3):
        for wrong in itertools.combinations(range(len(PARTS)), mistakes):
            choices = [part[1:] if i in wrong else part[:1] for i, part in enumerate(PARTS)]
            for parts in itertools.product(*choices):
                yield " ".join(part.why for part in parts if part.why), partial(seconds, parts=parts)


# -- and what else --

ONLY = "Only a number of ranks that is no multiple of the number of nodes is refused."
NO_LINK = "One rank alone uses no link: among no messages there is no slowest one."
ZERO = "With one rank, or one node, something that is divided by is 0: such a ring sends nothing."
FLOAT = "Return the seconds of the epoch, one float."
SAY_SO = "Such ranks cannot be shared alike by the nodes, and then the ring is another one: say so."
ROUNDED = "Close, but rounded: is it computed in float32? Python's floats, and float64, have 16 digits."
PRINTED = "Right, but rounded to {digits} digits behind the point. Rounding is for printing."
ALONE = "One rank alone computes, and sends nothing."
ONE_LINK = "It is right where all messages take one link. Where there are two kinds, a round waits for the slowest."
RING = (
    "In each step a ring of p ranks has 2 (p - 1) rounds, and a round takes latency + nbytes / p / bandwidth of the "
    "slowest link that it uses."
)
WHYS_REFUSED = [
    Rule("no link", lambda f: f.case.ranks == 1 and "empty" in str(f.got), NO_LINK),
    Rule("refused", always, ONLY),
]
WHYS_ZERO = [Rule("one of them", lambda f: 1 in (f.case.ranks, f.case.nodes), ZERO)]
WHYS = [
    Rule("shorter dtype", lambda f: f.in_float32, ROUNDED),
    Rule("rounded", lambda f: f.digits is not None, PRINTED),
    Rule("mistakes", lambda f: f.mistakes, "{mistakes}"),
    Rule("one rank", lambda f: all(c.ranks == 1 for c in f.wrong), ALONE),
    Rule(
        "one link",
        lambda f: all(1 in (c.nodes, c.ranks / c.nodes) for c in f.right) and any(c.ranks > 1 for c in f.right),
        ONE_LINK,
    ),
    Rule("no ring", lambda f: all(c.ranks == 1 for c in f.right), RING),
]
SECONDS, ERROR = "{want:.6g} s from {case}", "{kind}: {got}"
NUMBER, VALUE_ERROR = "a number of seconds from {case}", "ValueError for {case.ranks} ranks on {case.nodes} nodes"
TESTS = [
    Test("refused", lambda f: isinstance(f.got, ValueError), SECONDS, ERROR, WHYS_REFUSED),
    Test("divided by 0", lambda f: isinstance(f.got, ZeroDivisionError), SECONDS, ERROR, WHYS_ZERO),
    Test("no number", lambda f: not f.is_number or not math.isfinite(f.got), NUMBER, "{shown}", FLOAT),
    Test("value", lambda f: not close(f.got, f.want), SECONDS, "{got:.6g}", WHYS),
]
REFUSAL = [
    Test("divided by 0", lambda f: isinstance(f.got, ZeroDivisionError), VALUE_ERROR, ERROR),
    Test("a number", lambda f: not isinstance(f.got, ValueError), VALUE_ERROR, "{shown}", SAY_SO),
]
