"""What e16_accumulate is asked: the parameters and losses of one process, and one collective call an update.

Rebuilt from three reports: gradients of each micro-batch are averaged without no_sync, which made training on two nodes
more than twice as slow (https://github.com/huggingface/accelerate/pull/1153); the first micro-batch is synchronised
instead of the last (https://github.com/modelscope/FunASR/pull/3472); DDP is asked after the forward pass, which has
decided already (https://github.com/karpathy/build-nanogpt/pull/30).
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch._dynamo  # what torch.optim imports at its first use, which takes seconds: here, before the clock starts
import torch.nn.functional as F
from torch import nn

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.clinic import demand_diagnosis
from mpcourse.course.check.cases.on_models import on_real
from mpcourse.course.check.facts.gloo import Sent, group
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.rules import Finding, Table, Test, always, judge
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

EPOCHS, RATE, MOMENTUM = 3, 0.1, 0.9
START_UP = 6  # calls of DDP when it is made, and before its second forward pass

REFUTED = {
    "buckets": "Both traces show 8 calls of gloo:all_reduce, each of 240310 numbers. The network has as many "
    "parameters, so each call sends all gradients at once.",
    "buffers": "The traces show no broadcast, and a network of Linear and Tanh has no buffers.",
    "loading": "trace.txt has less than 3 ms of 26 in which a processor has nothing to do. And one.log shows a process "
    "that goes through twice as many micro-batches in a quarter of the time.",
    "scale": "ranks.log and one.log show the same loss after each epoch. A wrong factor would change the updates, and "
    "not the time that an epoch takes.",
    "slow rank": "trace.txt has less than 3 ms of 26 in which a rank waits for the other. Most of the time goes into "
    "transfers, when both ranks take part in a call.",
}


class Case(NamedTuple):
    """Arguments of train. frozen: whether the first layer is. seed: of the network and of the examples."""

    batches: int
    accumulate: int
    examples: int
    frozen: bool
    seed: int

    def __str__(self) -> str:
        return f"{EPOCHS} epochs of {counted(self.batches, 'micro-batch')} in updates of {self.accumulate}"

    def network(self) -> nn.Module:
        with torch.random.fork_rng(devices=()):
            torch.default_generator.manual_seed(self.seed)
            layers = nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 7), nn.Tanh(), nn.Linear(7, 3)
        layers[0].requires_grad_(not self.frozen)
        return nn.Sequential(*layers).double()

    def of_rank(self, rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        draw = np.random.default_rng([self.seed, rank])
        x = torch.from_numpy(draw.standard_normal((self.batches, self.examples, 5)))
        y = torch.from_numpy(draw.integers(3, size=(self.batches, self.examples)))
        return list(zip(x, y, strict=True))


SHAPES = ((8, 4, 3, False), (7, 3, 2, True), (5, 8, 1, False), (4, 1, 3, True), (11, 2, 1, False))


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    demand_diagnosis(answer, "micro-batches", REFUTED)
    seed = comm.bcast(drawing().getrandbits(30))
    for ranks in (comm, turned(comm)):
        with group(answer, ranks, DIFFERENT) as sent:
            for shape in SHAPES:
                case = Case(*shape, seed)
                on_real(answer, ranks, functools.partial(_program, case, sent), functools.partial(_judge, case))


# -- observation --


class Seen(NamedTuple):
    """What train returned on a rank, the parameters after it, what it sent, and whether the file speaks of no_sync."""

    got: Any
    values: np.ndarray
    sent: list[Sent]
    without_sync: bool


def _program(case: Case, sent: list[Sent], own: Answer, comm: "TracedComm") -> Seen:
    network = case.network()
    sent.clear()
    got = own.call("train", network, case.of_rank(comm.rank), case.accumulate, EPOCHS, RATE)
    without_sync = own.mentions("no_sync") or own.mentions("require_backward_grad_sync")
    return Seen(got, _values(network.parameters()), list(sent), without_sync)


def _values(parameters: Iterable[torch.Tensor]) -> np.ndarray:
    return np.concatenate([p.detach().numpy().ravel() for p in parameters])


@dataclass(frozen=True)
class Facts:
    """What was seen on a rank of `size`."""

    case: Case
    rank: int
    size: int
    seen: Seen

    got = property(lambda self: self.seen.got)
    shown = property(lambda self: short(self.got))
    what = property(lambda self: f"{self.case} on {counted(self.size, 'rank')}")
    updates = property(lambda self: EPOCHS * -(-self.case.batches // self.case.accumulate))
    gradients = property(lambda self: sum(p.numel() for p in self.case.network().parameters() if p.requires_grad))
    numbers = property(lambda self: sum(call.numbers for call in self.seen.sent))
    usual_numbers = property(lambda self: self.updates * self.gradients + EPOCHS)
    usual_calls = property(lambda self: self.updates + EPOCHS)
    calls = property(lambda self: len(self.seen.sent))
    by = property(lambda self: ", ".join(f"{n} x {call}" for call, n in Counter(self.seen.sent).most_common(4)))
    of_losses = property(lambda self: sum(call[:2] == ("allreduce", 1) for call in self.seen.sent))
    frozen_too = property(lambda self: sum(call.numbers == len(self.seen.values) for call in self.seen.sent))
    more_numbers = property(lambda self: self.numbers > self.usual_numbers + 2 * len(self.seen.values))
    each_micro_batch = property(lambda self: self.numbers >= EPOCHS * self.case.batches * self.gradients)

    @property
    def losses(self) -> np.ndarray | None:
        """What was returned, as an array; None where it is no list of a loss for each epoch."""
        try:
            losses = np.asarray(self.got, float)
        except (TypeError, ValueError):
            return None
        return losses if losses.shape == (EPOCHS,) else None

    @property
    def want(self) -> list[float]:
        return _trained(self.case, self.size, _mean)[1]

    def is_like(self, way: "Way", accumulate: int = 0) -> bool:
        """Return whether this rank's parameters are those of a training whose updates have this gradient."""
        values = _trained(self.case, self.size, way, accumulate)[0][self.rank]
        return bool(np.allclose(self.seen.values, values, rtol=1e-9, atol=1e-12))

    @property
    def off(self) -> float:
        return np.abs(self.seen.values - _trained(self.case, self.size, _mean)[0][self.rank]).max()

    @property
    def other_number(self) -> int:
        """How many micro-batches an update has, where that is not `accumulate`; 0 where it is."""
        others = (n for n in range(1, 2 * self.case.accumulate + 1) if n != self.case.accumulate)
        return next((n for n in others if self.is_like(_mean, accumulate=n)), 0)


def _judge(case: Case, everyone: Sequence[Seen]) -> Finding | None:
    return judge(TESTS, *(Facts(case, rank, len(everyone), seen) for rank, seen in enumerate(everyone)))


# -- what one process computes, and ranks that average otherwise --

# The gradient of a rank's update, None for no update. Its arguments are the rank, the gradients of all ranks'
# micro-batches in this update, (rank, micro-batch, number), and `accumulate`.
Way = Callable[[int, np.ndarray, int], np.ndarray | None]


@functools.cache
def _trained(case: Case, size: int, way: Way, accumulate: int = 0) -> tuple[list[np.ndarray], list[float]]:
    """Train in one process; the parameters of each rank, and the losses. way: the gradient of a rank's update."""
    networks, batches = [case.network() for _ in range(size)], [case.of_rank(rank) for rank in range(size)]
    trained = [[p for p in network.parameters() if p.requires_grad] for network in networks]
    momentum, losses = [np.zeros(len(_values(own))) for own in trained], []
    accumulate = accumulate or case.accumulate
    for _ in range(EPOCHS):
        total = 0.0
        for first in range(0, case.batches, accumulate):
            rows = []
            for network, own, its in zip(networks, trained, batches, strict=True):
                parts = [F.cross_entropy(network(x), y) for x, y in its[first : first + accumulate]]
                rows.append([_values(torch.autograd.grad(loss, own)) for loss in parts])
                total += sum(loss.item() for loss in parts)
            for rank, own in enumerate(trained):
                if (gradient := way(rank, np.array(rows), accumulate)) is None:
                    continue
                momentum[rank] = MOMENTUM * momentum[rank] + gradient
                values = torch.from_numpy(_values(own) - RATE * momentum[rank])
                nn.utils.vector_to_parameters(values, own)
        losses.append(total / size / case.batches)
    return [_values(network.parameters()) for network in networks], losses


def _mean(rank: int, gradients: np.ndarray, accumulate: int) -> np.ndarray:
    return gradients.mean((0, 1))


# -- what is said --

DIFFERENT = (
    "A collective call needs all ranks. What decides on a call, or on whether a micro-batch is synchronised, must be "
    "the same on all of them, such as the place of the micro-batch in its update."
)
WAYS: dict[str, Way] = {  # r: rank, g: gradients, k: accumulate
    "The ranks never average gradients, so each of them trains a network of its own. The last micro-batch of an update "
    "must be synchronised.": lambda r, g, k: g[r].mean(0),
    "Only the first micro-batch of an update is averaged over the ranks, and the others are added to it on each rank "
    "alone. The last backward pass of an update has to average what has been added up, and DDP decides on that in the "
    "forward pass before it.": lambda r, g, k: (g[:, 0].mean(0) + g[r, 1:].sum(0)) / len(g[r]),
    "An update at the end of an epoch may have fewer than `accumulate` micro-batches, and its last one must be "
    "synchronised, too.": lambda r, g, k: g.mean((0, 1)) if len(g[r]) == k else g[r].mean(0),
    "An update at the end of an epoch, of fewer than `accumulate` micro-batches, is left out. All micro-batches "
    "count.": lambda r, g, k: g.mean((0, 1)) if len(g[r]) == k else None,
    "Only the last micro-batch of an update counts. The gradients of all of them must be added up before they are "
    "averaged over the ranks.": lambda r, g, k: g[:, -1].mean(0) / len(g[r]),
    "The loss of a micro-batch is divided by their number already, and here the gradient is divided by it once "
    "more.": lambda r, g, k: g.mean((0, 1)) / len(g[r]),
    "The gradient, or the learning rate, is as many times too large as there are micro-batches in an update. Averaging "
    "less often does not change the mean.": lambda r, g, k: g.mean(0).sum(0),
    "An update at the end of an epoch may have fewer than `accumulate` micro-batches. Their losses are divided by "
    "their own number.": lambda r, g, k: g.mean((0, 1)) * len(g[r]) / k,
    "That is the sum over the ranks: divide it by their number, as DDP does.": lambda r, g, k: g.mean(1).sum(0),
    "DDP has averaged over the ranks already, and here the gradient is divided by their number once more.": (
        lambda r, g, k: g.mean((0, 1)) / len(g)
    ),
}
WHYS: Table = {
    **{sentence: functools.partial(Facts.is_like, way=way) for sentence, way in WAYS.items()},
    "An update has {other_number} micro-batches of a rank here. Larger or smaller updates are another training.": (
        lambda f: f.other_number
    ),
    "The gradient of an update is the mean over all its micro-batches of all ranks. The fault costs only time: all "
    "values were right before.": always,
}
TESTS = [
    Test(
        "no losses",
        lambda f: f.losses is None,
        "the losses of {what}, on rank {rank}",
        "{shown}",
        "Return the mean loss of each epoch on all ranks, as the program did.",
    ),
    Test(
        "other parameters",
        lambda f: not f.is_like(_mean),
        "the parameters that one process has after {what}",
        "parameters on rank {rank} that differ by up to {off:.2g}",
        WHYS,
    ),
    Test(
        "other losses",
        lambda f: not np.allclose(f.losses, f.want, rtol=1e-9, atol=1e-12),
        "losses {want} of {what}",
        "{losses} on rank {rank}",
        "The loss of an epoch is the mean over all micro-batches of all ranks, before their updates.",
    ),
    Test(
        "more numbers",
        lambda f: f.more_numbers,
        "about {usual_numbers} numbers in the messages of {updates} updates for {what}",
        "{numbers} on rank {rank}, by {by}",
        {
            "Each micro-batch still sends all gradients. DDP decides in the forward pass whether the backward pass "
            "after it averages them. Are both inside no_sync, for all micro-batches of an update but the last?": (
                lambda f: f.each_micro_batch and f.seen.without_sync
            ),
            "Each micro-batch still sends all gradients. What do the ranks need from each other before an update, and "
            "how often?": lambda f: f.each_micro_batch,
            "The messages have a number for each parameter. Frozen ones have no gradient: leave them out.": (
                lambda f: f.case.frozen and f.frozen_too >= f.updates
            ),
            "An update takes one all-reduce of its gradients, after its last micro-batch. Here other micro-batches are "
            "synchronised, too, or something else sends gradients or parameters.": always,
        },
    ),
    Test(
        "more calls",
        lambda f: f.calls > f.usual_calls + START_UP,
        "at most {usual_calls} collective calls for {what}, and some when DDP is made",
        "{calls} on rank {rank}, by {by}",
        {
            "The loss of an epoch takes one all-reduce. Until then, each rank adds up the losses of its own "
            "micro-batches.": lambda f: f.of_losses > EPOCHS,
            "Each call takes time however little it sends, and lets the ranks wait for the slowest one. One all-reduce "
            "brings all gradients of an update.": always,
        },
    ),
]
