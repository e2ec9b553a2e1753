"""What e16_no_gain is asked: each rank uses its own places of an epoch's order, with one Allreduce a step.

The fault is rebuilt from https://github.com/stanford-futuredata/ColBERT/issues/403 (robinnarsinghranabhat, September
2025): `range(0, len(self.data), nranks)` where `range(rank, ...)` was meant, beside the comment
`# if line_idx % nranks == rank`. Pull request 405 is the repair; in it, vishalbakshi measured that 4 and 8 GPUs reach a
lower loss with it. In https://github.com/Shark-NLP/DiffuSeq/issues/37 (Dawn-LX, March 2023) all GPUs had the same data,
and in https://github.com/threestudio-project/threestudio/issues/195 (claforte, June 2023) the same seed.
"""

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

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

EPOCHS, RATE, SEED, FEATURES = 3, 0.3, 11, 30
CASES = ((31, 3), (24, 2), (7, 2), (13, 1), (2, 4), (1, 1))  # examples, and those of a rank in a step

REFUTED = {
    "averaging": "If the gradients were not averaged, each rank would print the loss of its own examples, and ranks "
    "would have different weights at the end. In ranks.log, all ranks print the same losses, to the last digit.",
    "batch": "ranks.log says that each of the four ranks has 8 examples in a step, and not 2. Look at the losses of "
    "these examples, too.",
    "learning rate": "The run with 32 examples on one rank has the same learning rate, and its loss falls as it "
    "should. And in step 0, before the first update, the loss in one.log is not the mean of the losses in ranks.log.",
    "order": "If each epoch had the same order, ranks would still have different examples in a step. Step 0 belongs to "
    "the first epoch, and in ranks.log all ranks have the same loss in it.",
    "weights": "Ranks have to begin with the same weights, and the mean gradient keeps them equal. But with the same "
    "weights, different examples have different losses: compare the lines of step 0 in ranks.log.",
}


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    for ranks in (comm, turned(comm)):
        for case in CASES:
            on_real(answer, ranks, functools.partial(_program, case), functools.partial(_judge, case))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    demand_diagnosis(answer, "examples", REFUTED)
    for case in CASES:
        for size in SIZES:
            stumbled = f"{_text(case, size)} to end", STUMBLED
            on_virtual(answer, comm, size, functools.partial(_program, case), functools.partial(_judge, case), stumbled)


def _text(case: tuple[int, int], size: int) -> str:
    return f"{case[0]} examples on {size} ranks in batches of {case[1]}"


class Data:
    """A data set that notes what is read of it."""

    features = FEATURES

    def __init__(self, n: int) -> None:
        draw = np.random.default_rng(n)
        self.x = 0.3 * draw.standard_normal((n, FEATURES))
        self.y = self.x @ draw.standard_normal(FEATURES) + draw.standard_normal(n)
        self.was_read: list[int] = []

    def __len__(self) -> int:
        return len(self.y)

    def read(self, indices: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return x and y of these examples, and note that they were read."""
        chosen = np.array(indices, np.int64)
        self.was_read += chosen.tolist()
        return self.x[chosen], self.y[chosen]


# -- observation --


class Seen(NamedTuple):
    """What train returned on one rank, which examples it has read, and what it has sent."""

    got: Any
    read: list[int]
    sent: Sent | None


def _program(case: tuple[int, int], own: Answer, comm: Any) -> Seen:
    n, batch = case
    data, given = Data(n), other_than_world(comm)
    sent = counting(given)
    got = own.call("train", given, data, batch, EPOCHS, RATE, SEED)
    return Seen(got, data.was_read, sent())


@dataclass(frozen=True)
class Facts:
    """What was seen of all ranks, and the number of one of them. right: w after each step, from one process."""

    examples_and_batch: tuple[int, int]
    rank: int
    everyone: Sequence[Seen]
    right: np.ndarray

    epochs = EPOCHS
    n = property(lambda self: self.examples_and_batch[0])
    batch = property(lambda self: self.examples_and_batch[1])
    size = property(lambda self: len(self.everyone))
    case = property(lambda self: _text(self.examples_and_batch, self.size))
    seen = property(lambda self: self.everyone[self.rank])
    sent = property(lambda self: self.seen.sent)
    shown = property(lambda self: short(self.seen.got))
    steps = property(lambda self: len(self.right))

    @property
    def w(self) -> np.ndarray:
        """The returned array; NaN where there is none of the right shape."""
        try:
            got = np.asarray(self.seen.got, float)
        except (TypeError, ValueError):
            got = np.empty(0)
        return got if got.shape == self.right.shape else np.full_like(self.right, np.nan)

    no_array = property(lambda self: np.asarray(self.seen.got, object).shape != self.right.shape)
    wrong = property(lambda self: ~np.isclose(self.w, self.right, rtol=1e-9, atol=1e-12).all(1))
    at = property(lambda self: int(self.wrong.argmax()))  # the first wrong step
    w_then = property(lambda self: np.round(self.w[self.at][:3], 6).tolist())
    right_then = property(lambda self: np.round(self.right[self.at][:3], 6).tolist())

    # What a rank reads.

    own = property(lambda self: Counter(_own(self.n, self.rank, self.size)))
    read = property(lambda self: Counter(self.seen.read))
    reads = property(lambda self: [Counter(seen.read) for seen in self.everyone])
    times = property(lambda self: [sum(read[i] for read in self.reads) for i in range(self.n)])  # of each example
    foreign = property(lambda self: self.read - self.own)  # or read too often
    missing = property(lambda self: self.wrong.any() and self.own - self.read)  # right where examples are kept
    expected = property(lambda self: short(_own(self.n, self.rank, self.size)))
    found = property(lambda self: short(self.seen.read))

    # What explains the first update. w begins with zeros, so the update is w.

    @property
    def longer(self) -> float:
        """Return how many times as long as the right one it is; 0 if it has another direction."""
        factor = float(self.w[0] @ self.right[0] / (self.right[0] @ self.right[0]))
        return factor if np.allclose(self.w[0], factor * self.right[0], rtol=1e-9, atol=1e-12) else 0.0

    @property
    def own_update(self) -> np.ndarray:
        data = Data(self.n)
        x, y = data.read(_order(self.n, 0)[self.rank :: self.size][: self.batch])
        return RATE * y @ x / max(len(y), 1)

    calls = property(lambda self: len(self.sent.calls))
    bound = property(
        lambda self: (self.steps + EPOCHS) * (2 * (self.size - 1) * 8 * (FEATURES + 1) // self.size + SLACK)
    )


def _order(n: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([SEED, epoch]).permutation(n)


def _own(n: int, rank: int, size: int) -> list[int]:
    """Return the examples that a rank reads in all epochs."""
    return [i for epoch in range(EPOCHS) for i in _order(n, epoch)[rank::size].tolist()]


def _trained(n: int, together: int) -> np.ndarray:
    """Train in one process; return w after each step. together: the examples of all ranks in a step."""
    data, w, trace = Data(n), np.zeros(FEATURES), []
    for epoch in range(EPOCHS):
        order = _order(n, epoch)
        for begin in range(0, n, together):
            x, y = data.read(order[begin : begin + together])
            w = w - RATE * (x @ w - y) @ x / len(y)
            trace.append(w)
    return np.array(trace)


def _judge(case: tuple[int, int], everyone: Sequence[Seen]) -> Finding | None:
    right = _trained(case[0], case[1] * len(everyone))
    facts = [Facts(case, rank, everyone, right) for rank in range(len(everyone))]
    return judge(READING, *facts) or judge(UPDATES, *facts)


# -- what is said --

STUMBLED = (
    "Ranks may have different numbers of examples, and of steps. All of them have to make the same calls: a rank "
    "without examples takes part in this step with sums of 0."
)
WHYS: dict[str, Callable[[Facts], object]] = {
    "Each rank reads all examples and computes what all ranks compute. The ranks have to share this work.": (
        lambda f: f.size > 1 and all(len(seen.read) == EPOCHS * f.n for seen in f.everyone)
    ),
    "All ranks read the same examples, and no rank reads the others in this epoch. The more ranks there are, the fewer "
    "examples the training uses.": lambda f: f.size > 1 and all(read == f.read for read in f.reads),
    "Rank 0 reads for all ranks, and the others wait for it. Each rank can read its own examples.": (
        lambda f: f.size > 1 and not any(f.reads[1:])
    ),
    "This rank has the same examples in each epoch. Draw the order of each epoch anew, over all examples, and take "
    "the places of this rank in it.": lambda f: f.size > 1 and {*f.read.values()} == {EPOCHS},
    "The ranks draw different orders, so over all ranks some examples are read twice in an epoch, and others never. "
    "All ranks have to draw the same order.": lambda f: max(f.times) > EPOCHS > min(f.times),
    "Some examples are never read in an epoch. The task asks for each example once, also where the ranks then have "
    "different numbers of them.": lambda f: min(f.times) < EPOCHS,
    "Some examples are read more than once in an epoch. To read takes long, and an example that is used twice counts "
    "twice.": lambda f: max(f.times) > EPOCHS,
    "Each example is read once in an epoch, but by another rank than the task says: the example at place i of the "
    "epoch's order is that of rank i % size.": always,
}
READING = [
    THROUGH_WORLD,
    Test(
        "other examples",
        lambda f: f.foreign or f.missing,
        "rank {rank} of {size} to read the examples {expected} in {epochs} epochs",
        "{found}",
        WHYS,
    ),
]
UPDATES = [
    Test(
        "no array",
        lambda f: f.no_array,
        "an array of shape {right.shape} on rank {rank}, for {case}",
        "{shown}",
        "Return w after each step, on all ranks. The last step of an epoch may have fewer examples.",
    ),
    Test(
        "another w",
        lambda f: f.wrong.any(),
        "w = {right_then} ... after step {at} of {case}",
        "{w_then} ... on rank {rank}",
        {
            "The first update is {longer:.4g} times as long as rate times the mean gradient. More examples make this "
            "mean less noisy, but not longer.": lambda f: f.longer > 1 + 1e-6,
            "That is the gradient of this rank's examples alone. A step takes the mean over all ranks' examples.": (
                lambda f: np.allclose(f.w[0], f.own_update, rtol=1e-9, atol=1e-12)
            ),
            "The first step goes in another direction. On all ranks, w begins with zeros, and the first step has the "
            "first examples of each rank.": (lambda f: f.at == 0 and f.n >= f.size * f.batch),
            "Divide the sum of the gradients of all examples by their number, which the ranks have to add up as well: "
            "ranks may have different numbers of them.": always,
        },
    ),
    Test(
        "more calls",
        lambda f: f.sent and f.calls > f.steps + EPOCHS,
        "at most {steps} collective calls for {case}, and one more an epoch",
        "{calls} on rank {rank}",
        "Each call lets all ranks wait for the slowest. A step needs the one Allreduce that the program had.",
    ),
    Test(
        "more bytes",
        lambda f: f.sent and f.sent.nbytes > f.bound,
        "at most {bound} bytes from rank {rank}, for {case}",
        "{sent.by}",
        "Examples stay on the rank that has read them. Only the sums of gradients travel between ranks.",
    ),
]
