"""What e16_plateau is asked: update k has the learning rate of update k, on any number of ranks, by one Allreduce.

The fault is rebuilt from https://github.com/Lightricks/LTX-Video-Trainer/issues/67 (knightnemo, February 2026): on four
GPUs the learning rate of 10,000 steps is at its end after 2,500, because the scheduler advances once for each process.
https://github.com/huggingface/transformers/pull/24088 (sgugger, June 2023) and
https://github.com/huggingface/diffusers/issues/3954 (eliphatfs, July 2023) are about the same, and
https://github.com/jzhang38/EasyContext/issues/21 has what is seen: "Model stopped updating after 300-400 steps."
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

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

# -- inputs --

PEAK, BESIDES = 0.25, 16


class Case(NamedTuple):
    """batch: examples of a rank in an update. warmup: in updates."""

    n: int
    batch: int
    epochs: int
    warmup: int


CASES = (
    Case(40, 3, 2, 3),  # on 3 ranks, an epoch ends with a batch of 3, one of 1, and none
    Case(24, 2, 2, 3),
    Case(20, 2, 1, 0),
    Case(5, 4, 3, 9),  # the training ends within the warm-up
)
REFUTED = {
    "batch": "According to one.log, the one process takes 32 examples in each update, too, and its loss falls until "
    "the end. In update 0 the norm of the gradient is the same in both runs.",
    "data": "The one process has the second epoch from update 50 on, too, and its loss goes on falling. In ranks.log "
    "each rank has 8 examples in each update until the end.",
    "gradients": "In update 50 of ranks.log the norm of the gradient is 0.275714, more than in one.log. But the norm "
    "of the update is 0.000000. What is between a gradient and its update?",
    "peak": "A rate that is too high makes large updates. The largest update in ranks.log is smaller than that in "
    "one.log, and from update 50 on the norm of the updates is 0.000000.",
    "weights": "At the end of ranks.log, each rank prints the same sum of its weights. In each update, all ranks have "
    "the same norms of gradient and update.",
}


def _data(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(n)
    x = torch.randn(n, 3, generator=draw, dtype=torch.float64)
    return x, x.prod(1, keepdim=True) + x.sum(1, keepdim=True)


def _model() -> nn.Module:
    made = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    draw = torch.Generator().manual_seed(3)
    for p in made.parameters():
        p.data.copy_(torch.randn(p.shape, generator=draw, dtype=p.dtype))
    return made


def _weights(model: nn.Module) -> np.ndarray:
    return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    for ranks, case in itertools.product((comm, turned(comm)), CASES):
        on_real(answer, ranks, functools.partial(_program, case), functools.partial(_judge, case))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    demand_diagnosis(answer, "schedule", REFUTED)
    for case, size in itertools.product(CASES, SIZES):
        on_virtual(answer, comm, size, functools.partial(_program, case), functools.partial(_judge, case))


# -- observation --


@dataclass(frozen=True)
class Seen:
    """What a call on one rank did. path: the weights before each forward pass. ran: the first features of inputs."""

    losses: Any
    weights: np.ndarray
    path: list[np.ndarray]
    ran: set[float]
    sent: Sent | None


def _program(case: Case, own: Answer, comm: Any) -> Seen:
    given, model = other_than_world(comm), _model()
    path: list[np.ndarray] = []
    ran: set[float] = set()

    def forward(_: nn.Module, inputs: tuple[torch.Tensor]) -> None:
        path.append(_weights(model))
        ran.update(inputs[0][:, 0].tolist())

    model.register_forward_pre_hook(forward)
    sent = counting(given)
    losses = own.call("train", given, model, *_data(case.n), case.batch, case.epochs, case.warmup, PEAK)
    return Seen(losses, _weights(model), path, ran, sent())


class Oracle:
    """The training in one process.

    numbers: of rank 0's batch in each update, in the whole training. begins, n: its first example, and how many it has.
    """

    def __init__(self, case: Case, size: int) -> None:
        self.case, self.size = case, size
        self.x, self.y = _data(case.n)
        batches = -(-case.n // case.batch)
        starts = range(0, batches, size)
        self.per_epoch, self.updates = len(starts), case.epochs * len(starts)
        self.begins = [first * case.batch for first in starts] * case.epochs
        self.numbers = np.array([epoch * batches + first for epoch in range(case.epochs) for first in starts])
        self.n = np.array([min(case.n - begin, size * case.batch) for begin in self.begins])
        self.rates = self.scheduled(np.arange(self.updates))
        self.losses: list[float] = []
        self.weights = _weights(_model())
        for k, rate in enumerate(self.rates):
            loss, gradient = self.descent(k, self.weights)
            self.losses.append(loss)
            self.weights = self.weights - rate * gradient

    def scheduled(self, at: np.ndarray, warmup: int | None = None, updates: int | None = None) -> np.ndarray:
        """Return the rates at these places of a schedule."""
        w, last = self.case.warmup if warmup is None else warmup, updates or self.updates
        return PEAK * np.where(at < w, (at + 1) / max(w, 1), np.maximum(0, (last - at) / max(1, last - w)))

    def descent(self, k: int, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the mean loss of update k's examples, and its gradient."""
        model = _model()
        nn.utils.vector_to_parameters(torch.from_numpy(weights.copy()), model.parameters())
        rows = slice(self.begins[k], self.begins[k] + self.n[k])
        loss = ((model(self.x[rows]) - self.y[rows]) ** 2).mean() / 2
        return loss.item(), torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*model.parameters()])]).numpy()


@dataclass(frozen=True)
class Facts:
    """What a call on one rank did, beside what it should have done."""

    rank: int
    everyone: Sequence[Seen]
    oracle: Oracle

    seen = property(lambda self: self.everyone[self.rank])
    sent = property(lambda self: self.seen.sent)
    size = property(lambda self: len(self.everyone))
    case = property(lambda self: self.oracle.case)
    updates = property(lambda self: self.oracle.updates)
    right = property(lambda self: self.oracle.rates)
    losses = property(lambda self: np.array(self.seen.losses, float))

    @property
    def count(self) -> int:
        """How many losses there are; -1 if it is no list of numbers."""
        try:
            return len(self.losses) if self.losses.ndim == 1 else -1
        except (TypeError, ValueError):
            return -1

    @property
    def foreign(self) -> bool:
        batches = range(self.rank * self.case.batch, self.case.n, self.size * self.case.batch)
        own = {i for begin in batches for i in range(begin, min(begin + self.case.batch, self.case.n))}
        return bool(self.seen.ran - {self.oracle.x[i, 0].item() for i in own})

    # What rank 0 subtracted in each update, and the rate: how many times the gradient that is.

    @functools.cached_property
    def subtracted(self) -> np.ndarray | None:
        """None where it is not known, because not each update runs the model once."""
        path = self.everyone[0].path
        return None if len(path) != self.updates else -np.diff([*path, self.everyone[0].weights], axis=0)

    @functools.cached_property
    def gradients(self) -> np.ndarray:
        return np.array([self.oracle.descent(k, weights)[1] for k, weights in enumerate(self.everyone[0].path)])

    @functools.cached_property
    def rates(self) -> np.ndarray:
        if self.subtracted is None:
            return np.full(self.updates, np.nan)
        return (self.subtracted * self.gradients).sum(1) / (self.gradients**2).sum(1)

    @property
    def bent(self) -> bool:
        return self.subtracted is not None and not _close(self.subtracted, self.rates[:, None] * self.gradients)

    def has(self, rates: Any) -> bool:
        return _close(self.rates, rates)

    def times(self, rates: np.ndarray) -> float:
        """Return how many times these rates the rates are; 0 where they are no multiple."""
        factor = float(self.rates @ rates / (rates @ rates))
        return factor if self.has(factor * rates) else 0.0

    def at(self, places: np.ndarray, **changed: int) -> bool:
        """Return whether the rates are those at other places of the schedule, or of a changed schedule."""
        return self.has(self.oracle.scheduled(places, **changed))

    numbers = property(lambda self: self.oracle.numbers)
    order = property(lambda self: np.arange(self.updates))
    lengths = property(lambda self: (self.size * self.updates, self.case.epochs * -(-self.case.n // self.case.batch)))
    found = property(lambda self: self.oracle.scheduled(self.numbers))
    is_found = property(lambda self: self.has(np.maximum(self.found, self.rates.min())))  # perhaps with a lowest rate
    of_found = property(lambda self: self.times(self.found))
    of_right = property(lambda self: self.times(self.right))
    divisor = property(lambda self: next((a for a, by in DIVISORS.items() if self.has(self.right * by(self))), ""))
    fixed = property(lambda self: next((p for p in range(2, 9) if p != self.size and self.at(self.numbers // p)), 0))
    length = property(lambda self: next((w for w in range(self.updates) if self.at(self.order, warmup=w)), -1))
    again = property(lambda self: self.case.epochs > 1 and _close(*np.split(self.rates, self.case.epochs)))
    wrong = property(lambda self: ~np.isclose(self.rates, self.right, rtol=1e-7, atol=1e-9))

    # What sentences show.

    @property
    def text(self) -> str:
        c = self.case
        return f"{counted(self.updates, 'update')} on {counted(self.size, 'rank')}, with a warm-up of {c.warmup}"

    peak = PEAK
    shown = property(lambda self: short(self.seen.losses))
    k = property(lambda self: int(self.wrong.argmax()))
    right_k = property(lambda self: self.right[self.k])
    rate_k = property(lambda self: self.rates[self.k])
    i = property(lambda self: int(np.abs(self.seen.weights - self.oracle.weights).argmax()))
    right_i = property(lambda self: self.oracle.weights[self.i].item())
    weight_i = property(lambda self: self.seen.weights[self.i].item())
    on_0_i = property(lambda self: self.everyone[0].weights[self.i].item())
    bound = property(lambda f: f.updates * (2 * (f.size - 1) * 8 * (len(f.oracle.weights) + BESIDES) // f.size) + SLACK)


def _close(got: Any, want: Any) -> bool:
    return np.allclose(got, want, rtol=1e-7, atol=1e-9)


def _judge(case: Case, everyone: Sequence[Seen]) -> Finding | None:
    oracle = Oracle(case, len(everyone))
    facts = [Facts(rank, everyone, oracle) for rank in range(len(everyone))]
    return judge(RANKS, *facts) or judge(UPDATES, *facts)


# -- what is said --

DIVISORS: dict[str, Callable[[Facts], Any]] = {
    "nothing": lambda f: f.oracle.n,
    "the number of examples in a full update": lambda f: f.oracle.n / (f.size * f.case.batch),
}
WHYS = {
    "There is no schedule any more: each update has the peak as its rate. The task asks for a warm-up and a decay.": (
        lambda f: f.has(PEAK)
    ),
    "The rates still rise and fall too fast: on {size} ranks, each of the first updates has a rate that belongs to a "
    "later one. What does the number count that the schedule gets?": lambda f: f.is_found,
    "These are {of_found:.4g} times the rates of the program as you found it, which rise and fall too fast. A higher "
    "or lower peak does not change that.": lambda f: f.of_found and not f.of_right,
    "The sum of the gradients is divided by {divisor}. Divide it by the number of examples that all ranks have in this "
    "update.": lambda f: f.divisor,
    "The schedule has the right form, but all rates are {of_right:.4g} times those of the task. The task asks for the "
    "same peak on any number of ranks.": lambda f: f.of_right,
    "After the warm-up the rate never falls. The task asks for a decay.": (
        lambda f: f.has(np.where(f.order < f.case.warmup, f.right, PEAK))
    ),
    "The length of the warm-up is {length} instead of {case.warmup}. It is a number of updates, the same on any number "
    "of ranks.": lambda f: f.length >= 0,
    "The end is right, but the warm-up still takes fewer updates than the task says. It uses the same number as the "
    "decay, so let this be the number of the update.": lambda f: any(f.at(f.numbers, updates=n) for n in f.lengths),
    "All numbers are those of batches now. The warm-up begins with a lower rate than that of the task, "
    "peak / warmup, because the first batch is only a part of the first update.": (
        lambda f: any(f.at(f.numbers, warmup=f.size * f.case.warmup, updates=n) for n in f.lengths)
    ),
    "The schedule begins again in each epoch. It is one schedule of the whole training.": lambda f: f.again,
    "The schedule advances only once in {size} updates. It advances once in each update, on any number of ranks.": (
        lambda f: f.at(f.order // f.size)
    ),
    "The number of a batch is divided by {fixed}. That fits {fixed} ranks only.": lambda f: f.fixed,
    "A lowest rate is not asked for. The rate falls in equal steps until the last update.": (
        lambda f: f.has(np.maximum(f.right, f.rates.min()))
    ),
    "The first update has the rate 0, and changes nothing. Its number is k = 0, and its rate is that of the task for "
    "k = 0.": lambda f: f.case.warmup and f.rates[0] == 0,
    "Each rate comes one update too early. The first update has the rate of k = 0.": (
        lambda f: _close(f.rates[:-1], f.right[1:])
    ),
    "Right in the first epoch only. At the end of an epoch there may be no batch for some ranks, or a smaller one, and "
    "this is an update, too. Count the updates.": lambda f: not f.wrong[: f.oracle.per_epoch].any(),
    "The warm-up is right, but the decay is not. Compare its rates with (K - k) / (K - warmup) for the number k of the "
    "update.": lambda f: f.case.warmup and not f.wrong[: f.case.warmup].any(),
    "The decay is right, but the warm-up is not. Both need the number of the update.": (
        lambda f: not f.wrong[f.case.warmup :].any()
    ),
    "The rates of most updates are right, but the weights stay as they are in some updates. Each update changes "
    "them.": lambda f: (f.rates[f.wrong] == 0).all(),
    "Update k has the rate that the task gives for k. Here k counts the updates of the whole training, not batches or "
    "examples, and K is the number of all updates.": always,
}
RANKS = [
    THROUGH_WORLD,
    Test(
        "other number of losses",
        lambda f: f.count != f.updates,
        "a list of {updates} losses on rank {rank}, for {text}",
        "{shown}",
        {
            "The training has become longer. The schedule has to fit the number of updates that the caller asks for.": (
                lambda f: f.count > f.updates
            ),
            "Some updates are left out, and with them their examples. Each example is used once in each epoch.": (
                lambda f: f.count >= 0
            ),
            "Return a list with one loss for each update, on all ranks.": always,
        },
    ),
    Test(
        "examples of others",
        lambda f: f.foreign,
        "rank {rank} to run its own batches",
        "it runs others, too",
        "Each rank runs its own batches, and so has its share of the work. Sums travel between ranks.",
    ),
    Test(
        "copies differ",
        lambda f: not _close(f.seen.weights, f.everyone[0].weights),
        "the same weights on all ranks after {text}",
        "{on_0_i} as weight {i} on rank 0, and {weight_i} on rank {rank}",
        "The ranks have the same averaged gradient, so all of them need the same rate, and all make each update. What "
        "only one rank does, or what depends on a rank's own batches, makes their weights differ.",
    ),
]
UPDATES = [
    Test(
        "another direction",
        lambda f: f.bent,
        "rate times gradient to be subtracted in each update, for {text}",
        "something else",
        "The update is no multiple of the gradient of the mean loss over all examples of the update. The task asks for "
        "this, without momentum or other factors for each weight. A mean of the ranks' means is another gradient.",
    ),
    Test(
        "another rate",
        lambda f: f.subtracted is not None and f.wrong.any(),
        "update {k} to have the rate {right_k:.6g}, for {text} and the peak {peak}",
        "{rate_k:.6g}",
        WHYS,
    ),
    Test(
        "another weight",
        lambda f: not _close(f.seen.weights, f.oracle.weights),
        "weight {i} to be {right_i} after {text}",
        "{weight_i}",
        WHYS,
    ),
    Test(
        "another loss",
        lambda f: not _close(f.losses, f.oracle.losses),
        "losses {oracle.losses} for {text}",
        "{shown} on rank {rank}",
        "The loss of an update is the mean over its examples of all ranks, before the update.",
    ),
    Test(
        "more calls",
        lambda f: f.sent and len(f.sent.calls) > f.updates,
        "one collective call in an update, for {text}",
        "{sent.by}",
        "Each call lets all ranks wait for the slowest. All ranks know the number of the update, so the rate needs no "
        "call.",
    ),
    Test(
        "more bytes",
        lambda f: f.sent and f.sent.nbytes > f.bound,
        "at most {bound} bytes from rank {rank}, for {text}",
        "{sent.by}",
        "The gradients travel once in an update, in one Allreduce. A call like Allgather sends more, the more ranks "
        "there are.",
    ),
]
