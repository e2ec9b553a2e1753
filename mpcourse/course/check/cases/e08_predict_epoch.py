"""What e08_predict_epoch is asked: seconds of an epoch over a ring, and which mistakes give other numbers."""

import functools
import itertools
import math
import numbers
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.explain import explanation, gives
from mpcourse.course.check.facts.calls import as_first
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, short

Link = tuple[float, float]
FAST, PCIE, ETHERNET = (2e-6, 20e9), (10e-6, 12e9), (50e-6, 118e6)


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

    def __str__(self) -> str:
        return f"epoch_seconds({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"


class Rule(NamedTuple):
    """One part of the answer: how it is computed, and, of a wrong one, what is wrong about it."""

    value: Callable[..., float]
    why: str = ""


def _message(link: Link, nbytes: float) -> float:
    return link[0] + nbytes / link[1]


def _used(c: Epoch) -> list[Link]:
    return [c.inside] * (c.ranks > c.nodes) + [c.between] * (c.nodes > 1)


# Of each part the right rule comes first.
STEPS = (
    Rule(lambda c: math.ceil(c.examples / (c.batch * c.ranks))),
    Rule(
        lambda c: c.examples // (c.batch * c.ranks), "The examples that are left for a last, short step need one, too."
    ),
    Rule(
        lambda c: c.examples / (c.batch * c.ranks),
        "There is no part of a step: the last one takes as long as any.",
    ),
    Rule(
        lambda c: math.ceil(c.examples / c.batch),
        "All ranks together take batch x ranks examples in a step: the more ranks, the fewer steps has an epoch.",
    ),
    Rule(lambda c: math.ceil(c.examples / (c.batch * c.nodes)), "The examples are shared by ranks, not by nodes."),
    Rule(lambda c: c.examples // (c.batch * c.ranks) + 1, "One step too many where examples divide without a rest."),
    Rule(lambda c: 1, "That is one step: an epoch has ceil(examples / (batch x ranks)) of them."),
)
ROUNDS = (
    Rule(lambda c: 2 * (c.ranks - 1)),
    Rule(
        lambda c: c.ranks - 1, "After ranks - 1 rounds each rank has one sum: as many rounds again carry them to all."
    ),
    Rule(lambda c: 2 * c.ranks, "A chunk that has gone round needs no further message: 2 (ranks - 1) rounds."),
    Rule(lambda c: c.ranks, "A ring has 2 (ranks - 1) rounds."),
    Rule(lambda c: 2 * (c.nodes - 1), "The ring goes through all ranks, not from node to node: 2 (ranks - 1) rounds."),
    Rule(lambda c: 2 * math.ceil(math.log2(c.ranks)), "A tree has about lg ranks rounds, a ring 2 (ranks - 1)."),
    Rule(lambda c: 2, "A ring has 2 (ranks - 1) rounds, more of them the more ranks there are."),
    Rule(lambda c: 1, "A ring has 2 (ranks - 1) rounds, and each has its messages."),
)
SHARES = (
    Rule(lambda c: c.nbytes / c.ranks),
    Rule(lambda c: c.nbytes, "Each message is a chunk, nbytes / ranks, not all gradients."),
    Rule(lambda c: c.nbytes / c.nodes, "There are as many chunks as ranks, not as nodes."),
    Rule(lambda c: 8 * c.nbytes / c.ranks, "Bandwidth is in bytes per second here: nothing is to be multiplied by 8."),
    Rule(lambda c: 8 * c.nbytes, "Each message is a chunk of bytes: nbytes / ranks, and not in bits."),
    Rule(lambda c: 4 * c.nbytes / c.ranks, "nbytes counts bytes already, not numbers of 4 bytes."),
    Rule(lambda c: c.nbytes / max(1, c.ranks - 1), "The gradients are cut into as many chunks as there are ranks."),
)
MESSAGES = (
    Rule(lambda c, n: max((_message(link, n) for link in _used(c)), default=0.0)),
    Rule(
        lambda c, n: max(_message(link, n) for link in (c.inside, c.between)),
        "The slower link counts only if a message uses it: with one node none leaves it, with one rank on each none "
        "stays inside.",
    ),
    Rule(
        lambda c, n: _message(c.between if c.nodes > 1 else c.inside, n),
        "Do not take for granted that the link between nodes is the slower one: a round waits for the slowest message.",
    ),
    Rule(lambda c, n: _message(c.inside, n), "With several nodes some of the messages travel between them."),
    Rule(lambda c, n: _message(c.between, n), "On one node no message goes between nodes."),
    Rule(
        lambda c, n: sum(_message(link, n) for link in _used(c)),
        "All messages of a round travel at the same time: it takes as long as the slowest, not as all together.",
    ),
    Rule(
        lambda c, n: min((_message(link, n) for link in _used(c)), default=0.0),
        "A round is over when the slowest message has arrived, not the fastest.",
    ),
    Rule(
        lambda c, n: sum(_message(link, n) for link in _used(c)) / max(1, len(_used(c))),
        "A round is over when the slowest message has arrived: the average of links says nothing.",
    ),
    Rule(
        lambda c, n: _mean_over_ranks(c, n),
        "A round is over when the slowest message has arrived, however many fast ones there are: no average.",
    ),
    Rule(
        lambda c, n: max((n / link[1] for link in _used(c)), default=0.0),
        "A message takes its latency, too, and a ring has many of them.",
    ),
    Rule(
        lambda c, n: sum(
            max((f(link) for link in _used(c)), default=0.0) for f in (lambda k: k[0], lambda k: n / k[1])
        ),
        "The slowest message is that of one link: the worse latency and the worse bandwidth may be of two.",
    ),
    Rule(
        lambda c, n: max((link[0] / (2 * c.ranks - 2) + n / link[1] for link in _used(c)), default=0.0),
        "Each of the 2 (ranks - 1) messages has its latency, not only the first.",
    ),
    Rule(
        lambda c, n: _message(min(_used(c), key=lambda link: link[1], default=(0.0, math.inf)), n),
        "The link with less bandwidth need not be the slower one for a short message: compare latency + n / bandwidth.",
    ),
    Rule(
        lambda c, n: max((link[0] + n * link[1] for link in _used(c)), default=0.0),
        "Bytes divided by bytes per second are seconds: divide by the bandwidth.",
    ),
)
WHOLES = (
    Rule(lambda c, steps, ring: steps * (c.compute + ring)),
    Rule(lambda c, steps, ring: steps * c.compute + ring, "Gradients are summed in every step, not once an epoch."),
    Rule(lambda c, steps, ring: steps * max(c.compute, ring), "Nothing is hidden here: first compute, then the sum."),
    Rule(
        lambda c, steps, ring: steps * (c.compute / c.ranks + ring),
        "Each rank computes for `compute` seconds in every step, however many there are: what shrinks is the number of "
        "steps.",
    ),
    Rule(lambda c, steps, ring: steps * (c.compute * c.ranks + ring), "Ranks compute at the same time, not in turn."),
    Rule(lambda c, steps, ring: steps * c.compute, "The sum of gradients takes time, too."),
    Rule(lambda c, steps, ring: steps * ring, "Each step also computes."),
    Rule(
        lambda c, steps, ring: steps * (c.compute + c.ranks * ring),
        "All ranks send at the same time: a round takes one message's time, not one for each rank.",
    ),
    Rule(lambda c, steps, ring: c.compute + steps * ring, "Every step computes, not only the first."),
    Rule(lambda c, steps, ring: 1e3 * steps * (c.compute + ring), "The result is in seconds, not in milliseconds."),
)
PARTS = (STEPS, ROUNDS, SHARES, MESSAGES, WHOLES)
RIGHT = [part[0] for part in PARTS]


def _mean_over_ranks(c: Epoch, n: float) -> float:
    crossing = c.nodes if c.nodes > 1 else 0
    return (crossing * _message(c.between, n) + (c.ranks - crossing) * _message(c.inside, n)) / c.ranks


def seconds(case: Epoch, rules: Sequence[Rule] = RIGHT) -> float:
    """What the rules make of a case; the right ones, unless told."""
    steps, rounds, share, message, whole = (rule.value for rule in rules)
    ring = rounds(case) * message(case, share(case)) if case.ranks > 1 else 0.0
    return whole(case, steps(case), ring)


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


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Every rank may call this; ranks do not talk."""
    draw = drawing()
    cases = [*FIXED, *(_drawn(draw) for _ in range(20))]
    answers = [_asked(answer, case) for case in cases]
    seen, line = [((case,), got) for case, got in zip(cases, answers, strict=True)], answer.line
    for case, got in zip(cases, answers, strict=True):
        if not _close(got, want := seconds(case)):
            answer.line = line
            why = as_first(answer, functools.partial(_right, case=case))
            why = why or explanation(_misconceptions(), seen, gives(_close)) or _hint(cases, answers)
            raise Wrong(f"{want:.6g} s from {case}", f"{got:.6g}", why)
    for ranks, nodes in ((3, 2), (2, 4), (10, 4)):
        _refused(answer, cases[3]._replace(ranks=ranks, nodes=nodes))


def _drawn(draw: random.Random) -> Epoch:
    nodes = draw.choice((1, 2, 3, 5, 8))

    def link() -> Link:
        return draw.uniform(1e-6, 1e-4), draw.uniform(1e8, 2e10)

    each = draw.choice((1, 2, 3, 4))
    return Epoch(
        draw.randint(500, 100_000), draw.randint(1, 300), nodes * each, nodes, draw.uniform(1e-3, 0.5),
        draw.randint(1_000, 200_000_000), link(), link(),
    )  # fmt: skip


def _right(answer: Answer, case: Epoch) -> None:
    """Raise Wrong unless it is."""
    if not _close(got := _asked(answer, case), want := seconds(case)):
        raise Wrong(f"{want:.6g} s", f"{got:.6g}")


def _asked(answer: Answer, case: Epoch) -> float:
    try:
        got = answer.call("epoch_seconds", *case)
    except ValueError as error:
        why = "Only a number of ranks that is no multiple of the number of nodes is refused."
        raise Wrong(f"{seconds(case):.6g} s from {case}", f"ValueError: {error}", why) from None
    except ZeroDivisionError as error:
        why = "With one rank, or one node, something that is divided by is 0: such a ring sends nothing."
        raise Wrong(f"{seconds(case):.6g} s from {case}", f"ZeroDivisionError: {error}", why) from None
    if isinstance(got, bool) or not isinstance(got, numbers.Real) or not math.isfinite(got):
        raise Wrong(f"a number of seconds from {case}", short(got), "Return the seconds of the epoch, one float.")
    return float(got)


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-15)


def _misconceptions() -> Iterator[tuple[str, Callable[[Epoch], float]]]:
    """Those with one mistake, then with two, then with three, each with what such a program computes."""
    for mistakes in (1, 2, 3):
        for parts in itertools.combinations(range(len(PARTS)), mistakes):
            choices = [part[1:] if i in parts else part[:1] for i, part in enumerate(PARTS)]
            for rules in itertools.product(*choices):
                yield " ".join(rule.why for rule in rules if rule.why), functools.partial(seconds, rules=rules)


def _hint(cases: list[Epoch], answers: list[float]) -> str:
    """Where no known mistake gives these numbers: what the cases that are right have in common."""
    right = {c for c, got in zip(cases, answers, strict=True) if _close(got, seconds(c))}
    wrong = [c for c in cases if c not in right]
    if all(c.ranks == 1 for c in wrong):
        return "One rank alone computes, and sends nothing."
    if all(c.nodes == 1 or c.ranks == c.nodes for c in right) and any(c.ranks > 1 for c in right):
        return "It is right where all messages take one link. Where there are two kinds, a round waits for the slowest."
    if all(c.ranks == 1 for c in right):
        return (
            "In each step a ring of p ranks has 2 (p - 1) rounds, and a round takes latency + nbytes / p / bandwidth "
            "of the slowest link that it uses."
        )
    return ""


def _refused(answer: Answer, case: Epoch) -> None:
    try:
        got = answer.call("epoch_seconds", *case)
    except ValueError:
        return
    except ZeroDivisionError as error:
        raise Wrong(f"ValueError for {case.ranks} ranks on {case.nodes} nodes", f"ZeroDivisionError: {error}") from None
    why = "Such ranks cannot be shared alike by the nodes, and then the ring is another one: say so."
    raise Wrong(f"ValueError for {case.ranks} ranks on {case.nodes} nodes", short(got), why)
