"""What e16_drift is asked: all ranks skip the same steps, those of one process, by one Allreduce and one small call.

The fault is rebuilt from https://github.com/NVIDIA-NeMo/Automodel/pull/2468 (khazic, June 2026): a rank skips a
micro-batch by a `continue` of its own, and then the job hangs, or the "optimizer-step counts desync across ranks". In
https://github.com/pytorch/pytorch/issues/136009 (hywang66, September 2024) the loss scales differ, and "the parameters
of the model diverge across different ranks". In https://github.com/facebookresearch/fairscale/issues/180 (blefaudeux,
November 2020) "some ranks could skip and others try to step". A wrong repair is known as well: in
https://github.com/ecmwf/WeatherGenerator/issues/2724 (August 2026) rank 0 decides for all, and does not see the NaN of
other ranks.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.clinic import demand_diagnosis
from mpcourse.course.check.cases.on_models import SIZES, on_real, on_virtual
from mpcourse.course.check.facts.messages import SLACK, THROUGH_WORLD, Sent, counting, other_than_world
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.rules import Finding, Test, always, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

INPUTS, WIDTH, CLASSES, RATE, BESIDES = 3, 8, 3, 0.5, 256

REFUTED = {
    "examples": "Broken examples would make the loss infinite or NaN, and no loss in ranks.log is. In one.log the same "
    "batches do no harm.",
    "initial weights": "In ranks.log, all ranks have the same checksum until update 35. So they began with the same "
    "weights.",
    "learning rate": "With the same learning rate, the loss in one.log falls until the end. And with a rate "
    "that is too high, all ranks would go too far, but equally far. Why do their checksums differ from update 40 on?",
    "overflow": "According to the last lines of ranks.log, all weights are finite at the end. And in one.log the loss "
    "scale is as high at times: 2097152 in update 70.",
    "rounding": "In ranks.log, all bits are equal on all ranks for 35 updates. In update 40, rank 0 and rank 1 still "
    "have the same ones, and rank 2 does not only have other bits: what else is different in its line?",
}


class Case(NamedTuple):
    """An input of train.

    exponent: the first scale is 2 to the power of it. sizes: of the batches, in turn. broken: the number of a batch,
    and which of its examples holds NaN.
    """

    seed: int
    updates: int
    patience: int
    exponent: int
    sizes: tuple[int, ...]
    broken: tuple[int, int] = (-1, 0)


CASES = (
    Case(20, 24, 2, 15, (12,)),
    Case(1, 16, 3, 17, (7, 2, 5)),  # some ranks have no example of a batch of two
    Case(2, 12, 4, 14, (8, 9), broken=(5, 1)),  # the loss is NaN, too
    Case(4, 9, 1, 20, (1, 6)),
)


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    for ranks in (comm, turned(comm)):
        for case in CASES:
            on_real(answer, ranks, functools.partial(_program, case), functools.partial(_judge, case))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    demand_diagnosis(answer, "skipping", REFUTED)
    for case in CASES:
        for size in SIZES:
            stumbled = f"{_text(case, size)} to end", STUMBLED
            on_virtual(answer, comm, size, functools.partial(_program, case), functools.partial(_judge, case), stumbled)


def _text(case: Case, size: int) -> str:
    return f"a training of {case.updates} updates on {size} rank{'s' * (size > 1)}"


# -- inputs --


def _weights(case: Case) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(case.seed)
    shapes = (WIDTH, INPUTS), (WIDTH,), (CLASSES, WIDTH), (CLASSES,)
    return [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes]


def _batch(case: Case, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw batch n. Some examples are far larger than the others, so that ranks have gradients of other sizes."""
    draw, size = torch.Generator().manual_seed(1000 * case.seed + n), case.sizes[n % len(case.sizes)]
    x = torch.randn(size, INPUTS, generator=draw, dtype=torch.float64)
    x *= 1 + 30 * (torch.rand(size, 1, generator=draw) < 0.1)
    if case.broken[0] == n:
        x[case.broken[1]] = math.nan
    return x, torch.randint(CLASSES, (size,), generator=draw)


# -- oracle: one process --


@dataclass(frozen=True)
class Step:
    """A step. of_rank: the parts of the ranks, in each the loss and then the gradient."""

    batch: int
    scale: float
    of_rank: list[torch.Tensor]

    sums = property(lambda self: torch.stack(self.of_rank).sum(0))
    loss = property(lambda self: self.sums[0].item())
    bad = property(lambda self: [rank for rank, part in enumerate(self.of_rank) if not part.isfinite().all()])
    skipped = property(lambda self: bool(self.bad))


@functools.lru_cache(64)
def _trained(case: Case, size: int, factor: float = 1.0) -> tuple[list[Step], torch.Tensor]:
    """Return the steps, and all weights at the end. factor: of the learning rate."""
    weights, scale, count, steps = _weights(case), 2.0**case.exponent, 0, list[Step]()
    while sum(not step.skipped for step in steps) < case.updates:
        x, y = _batch(case, len(steps))
        parts = [_part(weights, x[r::size], y[r::size], len(y), scale) for r in range(size)]
        steps.append(step := Step(len(steps), scale, parts))
        if step.skipped:
            scale, count = scale / 2, 0
            continue
        change = (factor * RATE * step.sums[1:] / scale).split([w.numel() for w in weights])
        weights = [w - c.reshape(w.shape) for w, c in zip(weights, change, strict=True)]
        count += 1
        scale *= 2 if count % case.patience == 0 else 1
    return steps, torch.cat([w.flatten() for w in weights])


def _part(weights: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor, n: int, scale: float) -> torch.Tensor:
    leaves = [w.clone().requires_grad_() for w in weights]
    a, b, c, d = (leaf.half() for leaf in leaves)
    scores = F.linear(torch.tanh(F.linear(x.half(), a, b)), c, d).double()
    loss = F.cross_entropy(scores, y, reduction="sum") / n
    return torch.cat([loss.detach().reshape(1), *(g.flatten() for g in torch.autograd.grad(scale * loss, leaves))])


# -- observation --


class Seen(NamedTuple):
    """What train returned on one rank, the weights afterwards, and what the rank has sent."""

    got: Any
    weights: torch.Tensor
    sent: Sent | None


def _program(case: Case, own: Answer, comm: Any) -> Seen:
    given, net = other_than_world(comm), own.call("Net", INPUTS, WIDTH, CLASSES)
    for p, value in zip(net.parameters(), _weights(case), strict=True):
        p.data.copy_(value)
    steps, batches = len(_trained(case, comm.size)[0]), list[int]()

    def read(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        batches.append(n)
        if len(batches) > 4 * steps + 20:
            finite = all(bool(p.isfinite().all()) for p in net.parameters())
            got = f"{len(batches)} steps of rank {comm.rank}, whose weights are {'' if finite else 'not '}finite"
            raise Wrong(f"{case.updates} updates in {steps} steps", got, ENDLESS if finite else SPOILT)
        return _batch(case, n)

    sent = counting(given)
    got = own.call("train", given, net, read, case.updates, RATE, 2.0**case.exponent, case.patience)
    return Seen(got, torch.cat([p.detach().flatten() for p in net.parameters()]), sent())


@dataclass(frozen=True)
class Facts:
    """What was seen of all ranks, and the number of one of them."""

    given: Case
    rank: int
    everyone: Sequence[Seen]

    size = property(lambda self: len(self.everyone))
    seen = property(lambda self: self.everyone[self.rank])
    sent = property(lambda self: self.seen.sent)
    shown = property(lambda self: short(self.seen.got))
    case = property(lambda self: _text(self.given, self.size))
    updates = property(lambda self: self.given.updates)
    steps = property(lambda self: _trained(self.given, self.size)[0])
    weights = property(lambda self: _trained(self.given, self.size)[1])
    wanted = property(lambda self: [step for step in self.steps if not step.skipped])

    @property
    def history(self) -> list[tuple[int, float, float]] | None:
        """The updates that were returned; None where there are not as many triples of numbers."""
        try:
            got = [(int(n), float(scale), float(loss)) for n, scale, loss in self.seen.got]
        except (TypeError, ValueError, OverflowError):
            return None
        return got if len(got) == self.updates else None

    @functools.cached_property
    def first(self) -> int:
        """The first update that is not as in one process; `updates` for none."""
        assert self.history is not None
        return [*map(_as_in, self.history, self.wanted), False].index(False)

    wrong = property(lambda self: self.first < self.updates)
    update = property(lambda self: self.first + 1)
    batch = property(lambda self: self.history[self.first][0])
    scale = property(lambda self: self.history[self.first][1])
    loss = property(lambda self: self.history[self.first][2])
    want = property(lambda self: self.wanted[self.first])

    # The first step that this rank skips and one process does not, or the reverse.
    step = property(lambda self: self.steps[min(self.batch, self.want.batch)])
    who = property(lambda self: "rank " + " and rank ".join(map(str, self.step.bad)))
    everywhere = property(lambda self: [Facts(self.given, rank, self.everyone) for rank in range(self.size)])
    at_once = property(lambda self: [f.history[self.first] for f in self.everywhere])  # this update on all ranks
    alone = property(lambda self: len({batch for batch, _, _ in self.at_once}) > 1)
    scales_differ = property(lambda self: not self.alone and len({scale for _, scale, _ in self.at_once}) > 1)

    @property
    def another_scale(self) -> bool:
        """Whether the scale is not that of one process, even if all steps between have been skipped rightly."""
        if not self.wrong or self.too_early:
            return False
        halved = self.want.scale / 2 ** (self.batch - self.want.batch)
        return self.scales_differ or self.scale not in (self.want.scale, halved)

    too_early = property(lambda self: self.wrong and self.batch < self.want.batch)
    too_late = property(lambda self: self.wrong and self.batch > self.want.batch)
    listed = property(lambda self: any(_as_in(entry, self.want) for entry in self.history[self.first :]))
    retried = property(lambda self: _near(self.loss, self.step.loss) and min(self.at_once)[1] < self.step.scale)
    finite = property(lambda self: bool(self.seen.weights.isfinite().all()))
    gap = property(lambda self: (self.seen.weights - self.weights).abs().max().item())
    apart = property(lambda self: (self.seen.weights - self.everyone[0].weights).abs().max().item())

    def is_like(self, factor: float) -> bool:
        """Return whether this loss is that of a training with another rate."""
        wanted = [step for step in _trained(self.given, self.size, factor)[0] if not step.skipped]
        return _near(self.loss, wanted[self.first].loss)

    count = property(lambda self: len(self.steps))
    calls = property(lambda self: len(self.sent.calls))
    calls_bound = property(lambda self: 2 * len(self.steps) + 2)

    @property
    def bound(self) -> int:
        return len(self.steps) * (2 * (self.size - 1) * 8 * (1 + len(self.weights)) // self.size + BESIDES) + SLACK


def _as_in(entry: tuple[int, float, float], step: Step) -> bool:
    return entry[:2] == (step.batch, step.scale) and _near(entry[2], step.loss)


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def _judge(case: Case, everyone: Sequence[Seen]) -> Finding | None:
    facts = [Facts(case, rank, everyone) for rank in range(len(everyone))]
    if finding := judge([THROUGH_WORLD, NO_HISTORY], *facts):
        return finding
    earliest = [f for f in facts if f.first == min(other.first for other in facts)]
    for test in (TOO_EARLY, SCALE, TOO_LATE, LOSS):
        if finding := judge([test], *earliest):
            return finding
    return judge(REST, *facts)


# -- what is said --

STUMBLED = (
    "In some steps, only some ranks have infinite gradients. In such a step, too, all ranks have to make the same "
    "calls, and all of them skip it. So all of them first have to know that it is skipped."
)
SPOILT = (
    "If an infinite or NaN number of any rank gets into the weights, all later gradients are infinite or NaN, too. "
    "Look at all numbers of all ranks before an update."
)
ENDLESS = (
    "Nearly all steps are skipped. After a skipped step, the scale becomes half as large, so that the gradients of a "
    "later step fit into half precision."
)
NO_HISTORY = Test(
    "no history",
    lambda f: f.history is None,
    "a list of {updates} updates on rank {rank}, for {case}",
    "{shown}",
    "Return the list of (batch, scale, loss) on all ranks, with one entry for each update, as the program did.",
)
TOO_EARLY = Test(
    "an update in a step to be skipped",
    lambda f: f.too_early,
    "batch {batch} to be skipped in {case}, because {who} has an infinite or NaN gradient",
    "update {update} with batch {batch} on rank {rank}",
    {
        "Rank {rank} makes an update with a batch that another rank skips. From then on, gradients of different "
        "batches or with different scales are added up. A rank must not decide alone: what do all ranks get, that all "
        "of them can look at?": lambda f: f.alone,
        "Now the weights are infinite or NaN. One such number on any rank, in the loss or in any part of the gradient, "
        "is enough to spoil the sum over ranks, and then the step is skipped.": lambda f: not f.finite,
        "The step was skipped as it should be, but it is in the list. It is no update, and does not count as one.": (
            lambda f: f.listed
        ),
        "The batch is tried again with half the scale. It has one step, and the next step is about the next batch.": (
            lambda f: f.retried
        ),
        "The infinite or NaN numbers were replaced or left out, and the rest made an update. The task asks to skip "
        "this step, as one process does.": always,
    },
)
SCALE = Test(
    "another scale",
    lambda f: f.another_scale,
    "the scale {want.scale:.0f} in update {update}, for {case}",
    "{scale:.6g} on rank {rank}",
    {
        "The ranks have different scales. All of them halve theirs after a skipped step, whichever rank had the "
        "infinite gradient, and all of them double theirs at the same time.": (lambda f: f.scales_differ),
        "The scale is halved after a skipped step, and doubled after `patience` updates without a skipped step "
        "between them. A skipped step begins this count anew.": always,
    },
)
TOO_LATE = Test(
    "a finite step is skipped",
    lambda f: f.too_late,
    "update {update} with batch {want.batch}, for {case}",
    "batch {batch} on rank {rank}",
    {
        "Rank {rank} skips a batch with which another rank makes an update. All of them have to decide alike, by the "
        "sum over all ranks.": lambda f: f.alone,
        "All ranks skip a batch with a finite gradient. Only a step whose gradient is infinite or NaN is skipped, and "
        "the next step is about the next batch.": always,
    },
)
LOSS = Test(
    "another loss",
    lambda f: f.wrong,
    "the loss {want.loss} in update {update}, for {case}",
    "{loss} on rank {rank}",
    {
        "That is this rank's part of the loss. The list has the sum over all ranks.": (
            lambda f: f.first == 0 and f.size > 1 and _near(f.loss, f.want.of_rank[f.rank][0].item())
        ),
        "Even the first update has another loss. Loss and gradient are computed in half precision as the program "
        "did it, and the parts of the ranks are added up as float64.": lambda f: f.first == 0,
        "The parts of the gradient are averaged over ranks. They are parts of one mean already, so they add up.": (
            lambda f: f.is_like(1 / f.size)
        ),
        "The weights are different after the update before. An update subtracts rate times the sum of the ranks' "
        "parts, divided by the scale that this step's loss was multiplied by.": always,
    },
)
REST = [
    Test(
        "other weights",
        lambda f: not f.gap < 1e-11 or f.apart > 0,
        "the weights of one process after {case}, with the same bits on all ranks",
        "weights of rank {rank} that differ by up to {gap:.3g}, and by {apart:.3g} from those of rank 0",
        "The list is right, and the weights are not. Each update changes the weights of `net` on all ranks, also the "
        "last one.",
    ),
    Test(
        "more calls",
        lambda f: f.sent and f.calls > f.calls_bound,
        "at most two collective calls in each of {count} steps, for {case}",
        "{calls} on rank {rank}",
        "Each call lets all ranks wait for the slowest. To know that a step is skipped, one number of each rank is "
        "enough, or the sum itself.",
    ),
    Test(
        "more bytes",
        lambda f: f.sent and f.sent.nbytes > f.bound,
        "at most {bound} bytes from rank {rank}, for {case}",
        "{sent.by}",
        "The gradients travel once in a step, in one Allreduce. To agree, ranks need one number besides, and weights "
        "that are equal at the start stay equal by equal updates.",
    ),
]
