"""What e16_stops is asked: all ranks make as many steps, each example is used once, and a step is one Allreduce.

The fault is rebuilt from https://github.com/mlcommons/storage/issues/455 (June 2026): with a rounded-up share of the
samples, the last rank has fewer batches than the others, and a barrier of its loop meets a barrier of their next epoch.
The same program had stood still in https://github.com/argonne-lcf/dlio_benchmark/pull/198 (LouisDDN, June 2024), where
gdb showed one rank in MPI_Reduce and all others in MPI_Barrier.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.clinic import demand_diagnosis
from mpcourse.course.check.cases.on_models import SIZES, on_real, on_virtual
from mpcourse.course.check.facts.messages import SLACK, THROUGH_WORLD, Sent, counting, other_than_world
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.rules import Finding, Test, always, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

EPOCHS, RATE = 3, 0.4
CASES = ((31, 5), (40, 5), (7, 2), (13, 1), (2, 4), (12, 3))  # examples, and those of a rank in a step

REFUTED = {
    "slow rank": "py-spy.txt shows no rank that computes: one is in Allreduce, and two are in Barrier. A slow rank "
    "would compute, and the others would wait for it in the same call.",
    "lost message": "MPI sends a message again until it arrives, and reports a broken connection. And py-spy.txt "
    "shows ranks in two different calls, so they would also wait if no message was lost.",
    "order": "All ranks run the same calls in the same order: Allreduce in each step, then Barrier. py-spy.txt shows "
    "rank 0 in another Allreduce, while the others have left the loop. How often does each rank run through it?",
    "exception": "ranks.log has no traceback, and py-spy.txt shows all three processes inside MPI: a rank that has "
    "raised an exception would be gone.",
}


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    for ranks in (comm, turned(comm)):
        for case in CASES:
            on_real(answer, ranks, functools.partial(_program, case), functools.partial(_judge, case))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    demand_diagnosis(answer, "steps", REFUTED)
    for case in CASES:
        for size in SIZES:
            stumbled = f"{Facts(case, 0, [None] * size).case} to end", STUMBLED
            on_virtual(answer, comm, size, functools.partial(_program, case), functools.partial(_judge, case), stumbled)


def _data(n: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(n)
    x = draw.uniform(-1, 1, n)
    return x, 2 * x + 1 + 0.3 * draw.standard_normal(n)


# -- observation --


def _program(case: tuple[int, int], own: Answer, comm: Any) -> tuple[Any, Sent | None]:
    n, batch = case
    given = other_than_world(comm)
    sent = counting(given)
    return own.call("train", given, *_data(n), batch, EPOCHS, RATE), sent()


@dataclass(frozen=True)
class Facts:
    """What train returned on one rank and on the others, and what this rank has sent."""

    examples_and_batch: tuple[int, int]
    rank: int
    everyone: Sequence[Any]
    sent: Sent | None = None

    n = property(lambda self: self.examples_and_batch[0])
    batch = property(lambda self: self.examples_and_batch[1])
    size = property(lambda self: len(self.everyone))
    case = property(lambda self: f"{self.n} examples on {counted(self.size, 'rank')} in batches of {self.batch}")
    shown = property(lambda self: short(self.everyone[self.rank]))
    pair = property(lambda self: _pair(self.everyone[self.rank]))
    most = property(lambda self: -(-self.n // self.size))  # examples of rank 0
    steps = property(lambda self: -(-self.most // self.batch))
    calls = property(lambda self: len(self.sent.calls))
    usual = property(lambda self: EPOCHS * (self.steps + 1))

    def is_like(self, way: Callable[..., Any]) -> bool:
        """Return whether w is that of a training whose steps have other examples."""
        return bool(np.allclose(self.pair[0], _plain(self, way)[0], rtol=1e-9, atol=1e-12))

    apart = property(lambda self: not all(np.allclose(self.pair[0], p[0]) for p in map(_pair, self.everyone) if p))
    w = property(lambda self: _plain(self)[0])
    losses = property(lambda self: np.array(_plain(self)[1]))


def _pair(got: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return both w and the losses; None where there are no such two."""
    try:
        w, losses = (np.asarray(each, float) for each in got)
    except (TypeError, ValueError):
        return None
    return (w, losses) if w.shape == (2,) and losses.shape == (EPOCHS,) else None


def _of_step(f: Facts, step: int) -> list[list[int]]:
    """Return the examples of each rank in a step."""
    return [list(range(f.n))[r :: f.size][step * f.batch : (step + 1) * f.batch] for r in range(f.size)]


def _plain(f: Facts, way: Callable[[Facts, int], list[list[int]]] = _of_step) -> tuple[np.ndarray, list[float]]:
    """Train in one process. way: the examples of each rank in a step."""
    x, y = _data(f.n)
    w, losses = np.zeros(2), []
    for _ in range(EPOCHS):
        total = 0.0
        for step in range(f.steps):
            chosen = [i for of_rank in way(f, step) for i in of_rank]
            if not chosen:
                continue
            error = w[0] * x[chosen] + w[1] - y[chosen]
            total += (error**2).sum() / 2
            w = w - RATE * np.array([(error * x[chosen]).mean(), error.mean()])
        losses.append(total / f.n)
    return w, losses


def _cut_short(f: Facts, step: int) -> list[list[int]]:
    """Leave out the steps that not all ranks make."""
    return _of_step(f, step) if step < -(-(f.n // f.size) // f.batch) else []


def _full_only(f: Facts, step: int) -> list[list[int]]:
    """Leave out the steps in which a rank has less than a batch."""
    return _of_step(f, step) if step < f.n // f.size // f.batch else []


def _equal_shares(f: Facts, step: int) -> list[list[int]]:
    """Leave out the examples that some ranks have one more of."""
    return [[i for i in of_rank if i < f.n // f.size * f.size] for of_rank in _of_step(f, step)]


def _repeated(f: Facts, step: int) -> list[list[int]]:
    """Let ranks that lack an example take their first one again."""
    own = [list(range(f.n))[r :: f.size] for r in range(f.size)]
    padded = [mine + own[r][: f.most - len(mine)] for r, mine in enumerate(own)]
    return [mine[step * f.batch : (step + 1) * f.batch] for mine in padded]


def _from_the_beginning(f: Facts, step: int) -> list[list[int]]:
    """Let ranks that lack an example take the first ones of the data set."""
    order = [*range(f.n), *range(-f.n % f.size)]
    return [order[r :: f.size][step * f.batch : (step + 1) * f.batch] for r in range(f.size)]


def _judge(case: tuple[int, int], seen: Sequence[tuple[Any, Sent | None]]) -> Finding | None:
    everyone = [got for got, _ in seen]
    return judge(TESTS, *(Facts(case, rank, everyone, sent) for rank, (_, sent) in enumerate(seen)))


# -- what is said --

STUMBLED = (
    "Rank 0 has more examples than the last rank, and may need one more step. All ranks have to make the same calls: "
    "a rank without examples takes part in this step with sums of 0."
)
LOST = "Some examples are never used: the last steps are left out. The task asks for each example once in an epoch."
TWICE = "Some examples are used twice, to fill the last step. The task asks for each example exactly once in an epoch."
WHYS = {
    "The ranks end with different w. Each of them makes each update, with the sums of all ranks, also where it has no "
    "examples left.": lambda f: f.apart,
    LOST: lambda f: any(map(f.is_like, (_cut_short, _full_only, _equal_shares))),
    TWICE: lambda f: any(map(f.is_like, (_repeated, _from_the_beginning))),
    "A step averages over the examples of all ranks in this step: divide the sums of gradients by the sum of counts. "
    "A rank without examples adds 0 to both.": always,
}
TESTS = [
    THROUGH_WORLD,
    Test(
        "no pair",
        lambda f: f.pair is None,
        "w and the losses of {case}, on rank {rank}",
        "{shown}",
        "Return w and the list of losses on all ranks, as the program did.",
    ),
    Test(
        "another w",
        lambda f: not np.allclose(f.pair[0], f.w, rtol=1e-9, atol=1e-12),
        "w = {w} for {case}, as in one process",
        "{pair[0]} on rank {rank}",
        WHYS,
    ),
    Test(
        "other losses",
        lambda f: not np.allclose(f.pair[1], f.losses, rtol=1e-9, atol=1e-12),
        "losses {losses} for {case}",
        "{pair[1]} on rank {rank}",
        "The loss of an epoch is the mean over all examples of all ranks, on all ranks.",
    ),
    Test(
        "fewer calls",
        lambda f: f.sent and f.calls < EPOCHS * f.steps and f.size > 1,
        "an Allreduce in each step for {case}",
        "{calls} collective calls on rank {rank}",
        "Where each rank computes with the examples of all, further ranks save no time. A rank has its own examples, "
        "and an Allreduce adds up the sums.",
    ),
    Test(
        "more calls",
        lambda f: f.sent and f.calls > f.usual + EPOCHS + 1,
        "at most {usual} collective calls for {case}, and one more an epoch",
        "{calls} on rank {rank}",
        "Each call lets all ranks wait for the slowest. That ranks agree on the number of steps needs no call in each "
        "step: all of them know how many examples there are.",
    ),
    Test(
        "more bytes",
        lambda f: f.sent and f.sent.nbytes > 2 * 32 * f.usual + SLACK,
        "four numbers in a step for {case}",
        "{sent.by} on rank {rank}",
        "A step needs four sums, which one Allreduce sends as four numbers. A call like allreduce pickles them, and "
        "examples are on all ranks already.",
    ),
]
