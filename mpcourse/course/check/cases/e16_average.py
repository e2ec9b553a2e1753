"""What e16_average is asked: another order of all examples in each epoch, which the ranks share, in as few calls.

Rebuilt from two reports: https://github.com/pytorch/pytorch/issues/31771 (kangcp, January 2020), "DistributedSampler
can't shuffle the dataset", because set_epoch was never called; and https://github.com/modelscope/ms-swift/pull/9902
(tomzw11, August 2026), where the loss jumped at the beginning of each epoch. The authors of a library had forgotten the
call, too: https://github.com/facebookresearch/ClassyVision/pull/118 (aadcock, October 2019). No report measures what it
cost. The fault is nearly invisible.
"""

import functools
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch._dynamo  # what torch.optim imports at its first use, which takes seconds: here, before the clock starts
from torch import nn
from torch.nn.utils import parameters_to_vector
from torch.utils.data import Dataset

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.clinic import demand_diagnosis
from mpcourse.course.check.cases.on_models import on_real
from mpcourse.course.check.facts.gloo import Sent, group
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.rules import Finding, Test, always, judge
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

EPOCHS, DONE, RATE, FEATURES = 4, 2, 0.1, 3
MANY = 30  # examples: of so many, two random orders share few neighbours
START_UP = 6  # calls of DDP when it is made, and before its second forward pass
CASES = ((37, 6), (32, 5), (11, 2), (2, 4), (1, 1))  # examples, and those of a rank in a step

REFUTED = {
    "average": "If the list held the last weights in all places, the loss after epoch 0 would be the one after epoch "
    "19. In ranks.log, the loss after epoch 0 is another one than after epoch 19.",
    "learning rate": "Both runs have the same learning rate, and 32 examples in a step. So the mean gradient is as "
    "large and as noisy, and in loss.csv both losses fall equally fast in the first epochs.",
    "overlap": "In ranks.log, the sums of y of the four ranks differ, and they add up to the sum of all examples in "
    "one.log. So each example is on one rank in each epoch.",
    "padding": "960 examples are 240 for each of four ranks, as ranks.log says. So no example has to be used twice.",
    "unshuffled": "The order of the data set does not depend on the seed. But with another seed, seed.log shows other "
    "sums of y on all ranks, and the highest losses in other steps.",
}


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    demand_diagnosis(answer, "order", REFUTED)
    seed = comm.bcast(1 + drawing().getrandbits(20))
    for ranks in (comm, turned(comm)):
        with group(answer, ranks, DIFFERENT) as sent:
            for case in CASES:
                run = functools.partial(_program, case, seed, sent)
                on_real(answer, ranks, run, functools.partial(_judge, case))


class Examples(Dataset):
    """A data set that counts how often it is read."""

    def __init__(self, n: int) -> None:
        draw = np.random.default_rng(n)
        self.x = torch.from_numpy(draw.standard_normal((n, FEATURES)))
        self.y = torch.from_numpy(draw.standard_normal((n, 1)))
        self.reads = 0

    def __repr__(self) -> str:
        return f"a data set of {counted(len(self), 'example')}"

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.reads += 1
        return self.x[index], self.y[index]


class Model(nn.Module):
    """A linear model that notes the first feature of the examples in each forward pass, by which they are known."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, 1, dtype=torch.float64)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.noted: list[list[float]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.noted.append(x[:, 0].tolist())
        return self.linear(x)


# -- observation --


class Seen(NamedTuple):
    """What train returned on a rank, the examples of each step, and how many were read.

    final: the model's weights at the end.
    """

    got: Any
    steps: list[list[int]]
    reads: int
    final: np.ndarray
    sent: list[Sent]


def _program(case: tuple[int, int], seed: int, sent: list[Sent], own: Answer, comm: "TracedComm") -> list[Seen]:
    """Train from the beginning, from epoch DONE on, and, with many examples, with seed 0."""
    runs = [(seed, 0), (seed, DONE), (0, 0)]
    return [_seen(case, sent, own, *run) for run in runs[: 3 if case[0] > MANY else 2]]


def _seen(case: tuple[int, int], sent: list[Sent], own: Answer, seed: int, done: int) -> Seen:
    n, batch = case
    data, model = Examples(n), Model()
    sent.clear()
    got = own.call("train", model, data, batch, EPOCHS, RATE, seed, done)
    number = {x: i for i, x in enumerate(data.x[:, 0].tolist())}
    steps = [[number.get(x, -1) for x in step] for step in model.noted]
    return Seen(got, steps, data.reads, parameters_to_vector(model.parameters()).detach().numpy(), list(sent))


@dataclass(frozen=True)
class Facts:
    """What was seen of all ranks in one training, and the number of one of them.

    done: the epoch that the training begins with. whole: what was seen of the training that begins with epoch 0.
    """

    examples_and_batch: tuple[int, int]
    rank: int
    done: int
    everyone: Sequence[Seen]
    whole: Sequence[Seen]

    n = property(lambda self: self.examples_and_batch[0])
    batch = property(lambda self: self.examples_and_batch[1])
    size = property(lambda self: len(self.everyone))
    epochs = property(lambda self: EPOCHS - self.done)
    seen = property(lambda self: self.everyone[self.rank])
    shown = property(lambda self: short(self.seen.got))

    @property
    def what(self) -> str:
        begun = f" from epoch {self.done} on" if self.done else ""
        return f"{counted(self.n, 'example')} on {counted(self.size, 'rank')} in batches of {self.batch}{begun}"

    # The steps of a rank.

    share = property(lambda self: -(-self.n // self.size))  # examples of a rank in an epoch
    sizes = property(lambda self: [min(self.batch, self.share - i) for i in range(0, self.share, self.batch)])
    sizes_seen = property(lambda self: [len(step) for step in self.seen.steps])
    sizes_shown = property(lambda self: short(self.sizes_seen))
    used = property(lambda self: sum(self.sizes_seen))
    usual = property(lambda self: self.epochs * self.share)

    # The orders of epochs: for each epoch, the examples of each rank.

    orders = property(lambda self: self.orders_of(self.everyone))
    before = property(lambda self: self.orders_of(self.whole))

    def orders_of(self, everyone: Sequence[Seen]) -> list[list[list[int]]]:
        steps = len(self.sizes)
        per_rank = [
            [list(itertools.chain(*seen.steps[first : first + steps])) for first in range(0, len(seen.steps), steps)]
            for seen in everyone
        ]
        return [list(each) for each in zip(*per_rank, strict=True)]

    @property
    def uneven(self) -> int | None:
        """The first epoch in which some examples are used too often; None for none."""
        right = Counter(i % self.n for i in range(self.share * self.size)).values()
        times = (sorted(self.times(epoch).values()) for epoch in range(self.epochs))
        return next((epoch for epoch, each in enumerate(times) if each != sorted(right)), None)

    def times(self, epoch: int) -> Counter[int]:
        return Counter(itertools.chain(*self.orders[epoch]))

    @property
    def counted(self) -> str:
        """Say how often examples are used in that epoch: the one that is used most, and the one that is used least."""
        epoch = self.uneven or 0
        times = self.times(epoch)
        most, least = max(range(self.n), key=times.__getitem__), min(range(self.n), key=times.__getitem__)
        often, seldom = counted(times[most], "time"), counted(times[least], "time")
        return f"in epoch {self.done + epoch}, {often} for example {most}, and {seldom} for example {least}"

    all_used = property(lambda self: len(self.times(self.uneven)) == self.n)
    same_on_all = property(
        lambda self: self.size > 1 and all(len(set(map(frozenset, order))) == 1 for order in self.orders)
    )

    @property
    def stays(self) -> bool:
        """Whether this rank has the same order in all epochs, and another rank has not."""
        same = [all(order[rank] == self.orders[0][rank] for order in self.orders) for rank in range(self.size)]
        return any(same) and not all(same)

    staying = property(lambda self: next(r for r in range(self.size) if self.orders[0][r] == self.orders[-1][r]))

    @property
    def alike(self) -> tuple[int, int] | None:
        """Two epochs in which more than half of the examples have the same neighbours; None for none."""
        sets = [_neighbours(order) for order in self.orders] if self.n > MANY else []
        pairs = itertools.combinations(range(len(sets)), 2)
        return next(((a, b) for a, b in pairs if 2 * len(sets[a] & sets[b]) > len(sets[a])), None)

    same = property(lambda self: self.orders[self.alike[0]] == self.orders[self.alike[1]])
    equal = property(lambda self: [a == b for a, b in itertools.combinations(self.orders, 2)])
    late = property(lambda self: self.equal[0] and sum(self.equal) == 1)
    own_only = property(lambda self: self.n > MANY and self.size > 1 and all(map(self.keeps, range(self.size))))

    def keeps(self, rank: int) -> bool:
        return len({frozenset(order[rank]) for order in self.orders}) == 1

    # Numbers.

    @property
    def pair(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Losses and weights; None where there are no such two lists."""
        try:
            losses, weights = self.seen.got
            pair = np.asarray(losses, float), torch.stack(list(weights)).detach().numpy()
        except (TypeError, ValueError, RuntimeError):
            return None
        return pair if [each.shape for each in pair] == [each.shape for each in self.right] else None

    right = property(lambda self: self.trained())

    def trained(self, rate: float = RATE, ranks: Sequence[int] = ()) -> tuple[np.ndarray, np.ndarray]:
        """Train in one process with what was used; return losses and weights. ranks: whose examples count; all."""
        data, steps, losses, weights = Examples(self.n), len(self.sizes), [], []
        x, y = np.insert(data.x.numpy(), FEATURES, 1.0, axis=1), data.y.numpy()[:, 0]
        w = np.zeros(FEATURES + 1)
        for step in range(len(self.seen.steps)):
            chosen = [i for rank in ranks or range(self.size) for i in self.everyone[rank].steps[step]]
            error = x[chosen] @ w - y[chosen]
            losses.append(error @ error / 2 / len(error))
            w = w - rate * error @ x[chosen] / len(error)
            if (step + 1) % steps == 0:
                weights.append(w)
        return np.array(losses), np.array(weights)

    wrong = property(lambda self: ~_near(self.pair[1], self.right[1]).all(1))
    at = property(lambda self: self.done + int(self.wrong.argmax()))  # the first epoch with wrong weights
    got_then = property(lambda self: np.round(self.pair[1][self.at - self.done], 6).tolist())
    right_then = property(lambda self: np.round(self.right[1][self.at - self.done], 6).tolist())
    off = property(lambda self: ~_near(self.pair[0], self.right[0]))
    step = property(lambda self: int(self.off.argmax()))  # the first with a wrong loss
    losses = property(lambda self: [each[0][self.step] for each in (self.pair, self.right)])
    scaled = property(lambda self: self.size > 1 and self.is_like(rate=RATE * self.size))

    def is_like(self, **other: Any) -> bool:
        """Return whether the weights are those of another training."""
        return bool(_near(self.pair[1], self.trained(**other)[1]).all())  # type: ignore[index]

    calls = property(lambda self: len(self.seen.sent))
    usual_calls = property(lambda self: 2 * len(self.seen.steps))
    by = property(lambda self: ", ".join(f"{n} x {call}" for call, n in Counter(self.seen.sent).most_common(4)))


def _neighbours(order: list[list[int]]) -> set[frozenset[int]]:
    """Return the pairs of examples that a rank uses one after the other."""
    return {frozenset(pair) for own in order for pair in itertools.pairwise(own)}


def _near(got: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.isclose(got, right, rtol=1e-9, atol=1e-12)


def _judge(case: tuple[int, int], seen: Sequence[list[Seen]]) -> Finding | None:
    runs = list(zip(*seen, strict=True))
    dones = 0, DONE, 0
    whole, later, *other = (
        [Facts(case, rank, done, run, runs[0]) for rank in range(len(seen))]
        for run, done in zip(runs, dones[: len(runs)], strict=True)
    )
    return (
        judge([STEPS], *whole, *later, *itertools.chain(*other))
        or judge(ORDERS, *whole)
        or judge(GOES_ON, *later)
        or judge(SEEDS, *itertools.chain(*other))
        or judge(NUMBERS, *whole, *later)
    )


# -- what is said --

DIFFERENT = (
    "All ranks have to make the same calls. Here some ranks make a call that others do not make, and it would wait for "
    "them forever."
)
STEPS = Test(
    "other steps",
    lambda f: f.sizes_seen != f.epochs * f.sizes,
    "rank {rank} to use {sizes} examples in the steps of each epoch, for {what}",
    "{sizes_shown}",
    {
        "Each rank goes through all examples, so each of them is used {size} times in an epoch. The ranks have to "
        "share them.": lambda f: f.size > 1 and f.used == f.epochs * f.n,
        "Rank {rank} uses too few examples in an epoch. All of them count: if the ranks have different numbers of "
        "them, some are used again.": lambda f: f.used < f.usual,
        "A rank takes `batch` examples in each step, and what is left in the last step of an epoch. Other steps are "
        "another training.": always,
    },
)
SHARED = Test(
    "uneven",
    lambda f: f.uneven is not None,
    "each example to be used equally often in an epoch, for {what}",
    "{counted}",
    {
        "All ranks use the same examples. Each needs its own part of the order.": lambda f: f.same_on_all,
        "Rank {staying} goes through the same examples in each epoch, and other ranks do not. So they no longer share "
        "one order. All ranks need the order of this epoch.": lambda f: f.stays,
        "All examples are used, but some too often. Those that are used again have to be different ones: none is used "
        "a third time before all have been used twice.": lambda f: f.all_used,
        "The ranks have to share one order: each takes a part of it. To draw it, all of them need the same seed and "
        "the same number.": always,
    },
)
ORDERS = [
    SHARED,
    Test(
        "alike",
        lambda f: f.alike,
        "epochs {alike[0]} and {alike[1]} to have different orders, for {what}",
        lambda f: "the same order" if f.same else "orders in which most examples have the same neighbours",
        {
            "All epochs have the same order. So the steps of an epoch always pull the weights to the same place, and "
            "no mean over epochs takes that out. From what does the sampler draw its order, and what of this changes "
            "from epoch to epoch?": lambda f: all(f.equal),
            "Epochs 0 and 1 have the same order, and later ones have others. The sampler draws the order when the loop "
            "over the loader begins. A number that it gets after that counts for the next epoch.": lambda f: f.late,
            "Some epochs have the same order. Each epoch needs an order of its own.": lambda f: f.same,
            "These orders have been made from each other, by moving or turning them or their batches. A random order "
            "of all examples has to be drawn anew for each epoch.": always,
        },
    ),
    Test(
        "own only",
        lambda f: f.own_only,
        "rank {rank} to use other examples from epoch to epoch, for {what}",
        "the same ones in all epochs",
        "A rank has only its own examples in all epochs, and shuffles these. So the same examples are never together "
        "with some others in a step. The order of an epoch is one of all examples, and the ranks share it.",
    ),
]
GOES_ON = [
    SHARED,
    Test(
        "another order",
        lambda f: f.orders != f.before[f.done :],
        "the orders of epochs {done} and later, for {what}",
        "other orders than in a training without an interruption",
        {
            "A training that goes on begins with the order of epoch 0 again. The order belongs to the number of the "
            "epoch in the whole training, which is not the number of epochs or steps since the start of this "
            "program.": lambda f: f.orders[0] == f.before[0],
            "The order depends on something else than `seed` and the number of the epoch, such as `done`, or what was "
            "drawn from a random generator before. So a training cannot go on where it was interrupted.": always,
        },
    ),
]
SEEDS = [
    Test(
        "alike with seed 0",
        lambda f: f.alike and f.same,
        "epochs {alike[0]} and {alike[1]} to have different orders with seed 0, for {what}",
        "the same order",
        "With another seed, the epochs have different orders. But `seed` may be 0, and 0 times the number of the epoch "
        "is always 0.",
    ),
    Test(
        "same with another seed",
        lambda f: f.orders == f.before,
        "other orders with another seed, for {what}",
        "the same orders",
        "The orders do not depend on `seed`. It is there so that another seed gives other orders.",
    ),
]
NUMBERS = [
    Test(
        "no lists",
        lambda f: f.pair is None,
        "the losses of all steps and the weights after all epochs, for {what}",
        "{shown} on rank {rank}",
        "Return two lists on all ranks, as the program did.",
    ),
    Test(
        "other weights",
        lambda f: f.wrong.any(),
        "weights {right_then} after epoch {at}, for {what}",
        "{got_then} on rank {rank}",
        {
            "The learning rate is {size} times as high as `rate`. A step has no more examples than in one process, and "
            "their mean gradient is no smaller.": lambda f: f.scaled,
            "This rank has made its updates with its own gradients. A step averages them over all ranks.": (
                lambda f: f.size > 1 and f.is_like(ranks=[f.rank])
            ),
            "The model is right at the end, and the list is not. It holds the weights after each epoch, each in a "
            "tensor of its own, and the caller averages them.": lambda f: _near(f.seen.final, f.right[1][-1]).all(),
            "A step subtracts rate times the gradient of the mean loss, and nothing else changes the weights. "
            "Only the orders of the examples were wrong.": always,
        },
    ),
    Test(
        "other losses",
        lambda f: f.off.any(),
        "the loss {losses[1]:.6f} in step {step}, for {what}",
        "{losses[0]:.6f} on rank {rank}",
        "The loss of a step is the mean over its examples on all ranks, before its update.",
    ),
    Test(
        "more reading",
        lambda f: f.seen.reads > f.used,
        "rank {rank} to read {used} examples, for {what}",
        "{seen.reads}",
        "A rank reads only what it uses. To read takes longer than all else, and here the ranks do not share it.",
    ),
    Test(
        "read elsewhere",
        lambda f: not f.seen.reads,
        "rank {rank} to read its examples by data[i], for {what}",
        "no example read in this process",
        "A worker of DataLoader is another process. This training starts none: each rank reads its examples itself.",
    ),
    Test(
        "more calls",
        lambda f: f.calls > f.usual_calls + START_UP,
        "at most {usual_calls} collective calls for {what}, and some when DDP is made",
        "{calls} on rank {rank}, by {by}",
        "Each call lets all ranks wait for the slowest one. Ranks that have the same seed draw the same order, and "
        "need no call to agree on it.",
    ),
]
