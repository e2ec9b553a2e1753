"""What e16_pipeline is asked: losses and weights of one process, one weight on two ranks, one exchange an update.

The fault is rebuilt from https://github.com/NVIDIA/Megatron-LM/issues/656 (mayank31398, January 2024): with pipeline
parallelism, `word_embeddings.weight` was not the same on the first and the last stage, while "the training is
progressing fine". https://github.com/facebookresearch/lingua/pull/75 (mathuvu, January 2025),
https://github.com/meta-pytorch/torchtune/pull/616 (ebsmothers, April 2024) and
https://github.com/mosaicml/examples/issues/11 (ananyahjha93, October 2022) tell of the same under FSDP.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch._dynamo  # what torch.optim imports at its first use, which takes seconds: here, before the clock starts
import torch.nn.functional as F

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

IDS, WIDTH, RATE, MOMENTUM = 40, 5, 0.2, 0.9
MORE = 512  # bytes that a rank may send besides in a step: what is pickled is longer

REFUTED = {
    "initial weights": "In step 0, before any update, the weights of all layers have the same norms in ranks.log and "
    "one.log, and both runs have the same loss. So they begin with the same weights.",
    "learning rate": "A learning rate changes what an update makes of a gradient. But in step 0, before any update, "
    "two layers of ranks.log already have other gradients than in one.log.",
    "message order": "With messages of other micro-batches, a rank in the middle would compute other gradients, too. "
    "Compare the gradients of the blocks in step 0 of ranks.log and one.log.",
    "micro-batches": "Another mean would make the loss of step 0, and the gradients of all layers, larger or smaller "
    "by a factor. Which layers of ranks.log have another gradient than in one.log, and which have the same?",
    "stale weights": "In step 0 no weights have been updated, so none of them are old. But two layers of "
    "ranks.log already have other gradients than in one.log.",
}


class Case(NamedTuple):
    """An input of train. parts: the micro-batches of a step, each of `sequences` sequences of `length` ids."""

    blocks: int
    updates: int
    parts: int
    sequences: int
    length: int
    frozen: bool = False


CASES = (Case(4, 1, 2, 2, 5), Case(5, 5, 3, 2, 4), Case(4, 3, 2, 1, 2), Case(6, 4, 2, 3, 3, frozen=True))


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    for ranks in (comm, turned(comm)):
        for case in CASES:
            on_real(answer, ranks, functools.partial(_program, case), functools.partial(_judge, case))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    demand_diagnosis(answer, "tied weights", REFUTED)
    for case in CASES:
        for size in SIZES:
            stumbled = ("a frozen embedding to stay as it is", FROZEN) if case.frozen else None
            on_virtual(answer, comm, size, functools.partial(_program, case), functools.partial(_judge, case), stumbled)


class Weights(NamedTuple):
    """Those of a model. embedding, head: two copies of what is one weight in a model."""

    embedding: torch.Tensor
    head: torch.Tensor
    blocks: list[torch.Tensor]  # weight and bias of each


def _weights(case: Case) -> Weights:
    draw = np.random.default_rng(case.blocks)
    shared = torch.from_numpy(0.5 * draw.standard_normal((IDS, WIDTH)))
    shapes = ((WIDTH, WIDTH), (WIDTH,)) * case.blocks
    return Weights(shared, shared.clone(), [torch.from_numpy(0.5 * draw.standard_normal(shape)) for shape in shapes])


def _steps(case: Case) -> list[list[torch.Tensor]]:
    draw, shape = np.random.default_rng(case.updates), (case.sequences, case.length)
    return [[torch.from_numpy(draw.integers(IDS, size=shape)) for _ in range(case.parts)] for _ in range(case.updates)]


# -- oracle: one process --

Way = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def _sum(i: torch.Tensor, o: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return i + o, i + o


@functools.lru_cache(64)
def _trained(case: Case, way: Way = _sum) -> tuple[list[float], Weights]:
    """Return losses and weights. way: with which gradients embedding and head are updated, from their own ones."""
    model, losses = _weights(case), []
    flat = [model.embedding, model.head, *model.blocks]
    speeds = [torch.zeros_like(p) for p in flat]
    for parts in _steps(case):
        ids, leaves = torch.cat(parts), [p.clone().requires_grad_() for p in flat]
        x = leaves[0][ids[:, :-1]]
        for weight, bias in zip(leaves[2::2], leaves[3::2], strict=True):
            x = x + torch.tanh(x @ weight.T + bias)
        loss = F.cross_entropy((x @ leaves[1].T).flatten(0, 1), ids[:, 1:].flatten())
        i, o, *others = torch.autograd.grad(loss, leaves)
        losses.append(loss.item())
        for n, (p, gradient, speed) in enumerate(zip(flat, [*way(i, o), *others], speeds, strict=True)):
            speed.mul_(MOMENTUM).add_(gradient)
            p -= RATE * speed * (n > 1 or not case.frozen)
    return losses, model


# -- observation --


class Seen(NamedTuple):
    """What train returned on one rank, the weights of its model afterwards, and what the rank has sent."""

    got: Any
    weights: Weights
    sent: Sent | None


def _program(case: Case, own: Answer, comm: Any) -> Seen:
    model, given = own.call("Model", IDS, WIDTH, case.blocks).double(), other_than_world(comm)
    begin = _weights(case)
    for p, value in zip(_parameters(model), (begin.embedding, begin.head, *begin.blocks), strict=True):
        p.data.copy_(value)
    model.embedding.weight.requires_grad_(not case.frozen)
    sent = counting(given)
    got = own.call("train", given, model, _steps(case), RATE, MOMENTUM)
    embedding, head, *blocks = (p.detach().clone() for p in _parameters(model))
    return Seen(got, Weights(embedding, head, blocks), sent())


def _parameters(model: Any) -> list[Any]:
    """Return the parameters in the order of Weights."""
    blocks = [p for block in model.blocks for p in (block.weight, block.bias)]
    return [model.embedding.weight, model.head.weight, *blocks]


@dataclass(frozen=True)
class Facts:
    """What was seen of all ranks, and the number of one of them."""

    given: Case
    rank: int
    everyone: Sequence[Seen]

    size = property(lambda self: len(self.everyone))
    seen = property(lambda self: self.everyone[self.rank])
    sent = property(lambda self: self.seen.sent)
    got = property(lambda self: self.seen.got)
    shown = property(lambda self: short(self.got))
    first = property(lambda self: self.rank == 0)
    last = property(lambda self: self.rank == self.size - 1)
    updates = property(lambda self: self.given.updates)
    losses = property(lambda self: _trained(self.given)[0])
    of_what = property(lambda self: " and a frozen embedding" if self.given.frozen else "")
    steps = property(lambda self: f"{counted(self.updates, 'step')} of {self.given.parts} micro-batches{self.of_what}")
    case = property(lambda self: f"{self.steps} on {counted(self.size, 'rank')}")

    @property
    def no_losses(self) -> bool:
        """Whether the last rank has returned no list of as many numbers as there are steps."""
        if not self.last:
            return False
        try:
            return np.asarray(self.got, float).shape != (self.updates,)
        except (TypeError, ValueError):
            return True

    @property
    def other_losses(self) -> bool:
        return self.last and not np.allclose(self.got, self.losses, rtol=1e-9, atol=1e-12)

    @property
    def block_gap(self) -> float:
        """How far the blocks of this rank are off."""
        n = self.given.blocks
        own = slice(2 * (self.rank * n // self.size), 2 * ((self.rank + 1) * n // self.size))
        return max(map(_gap, self.seen.weights.blocks[own], _trained(self.given)[1].blocks[own]))

    def gap(self, way: Way = _sum) -> float:
        """How far embedding and head of this rank are off from what this way to update them makes."""
        right, here = _trained(self.given, way)[1], self.seen.weights
        return max(self.first and _gap(here.embedding, right.embedding), self.last and _gap(here.head, right.head))

    def is_like(self, way: Way, gap: float = 1e-9) -> bool:
        """Return whether embedding and head of the two ranks are what this way makes."""
        return max(Facts(self.given, rank, self.everyone).gap(way) for rank in (0, self.size - 1)) < gap

    off = property(lambda self: self.gap())
    layers = property(lambda self: " and ".join(["embedding"] * self.first + ["head"] * self.last))
    apart = property(lambda self: _gap(self.everyone[0].weights.embedding, self.everyone[-1].weights.head))

    # What a rank may send.

    ends = property(lambda self: self.size > 1 and (self.first or self.last))
    calls = property(lambda self: len(self.sent.calls))
    calls_bound = property(lambda self: 3 + self.updates * (self.ends or self.size == 1))

    @property
    def bound(self) -> int:
        a = self.given
        through = 8 * a.parts * a.sequences * (a.length - 1) * WIDTH * ((not self.first) + (not self.last))
        return self.updates * (through + 8 * IDS * WIDTH * self.ends + MORE) + SLACK


def _gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


def _judge(case: Case, everyone: Sequence[Seen]) -> Finding | None:
    facts = [Facts(case, rank, everyone) for rank in range(len(everyone))]
    early = [BLOCKS] if case.updates == 1 else []  # later, one wrong weight makes all others wrong
    for tests in ([THROUGH_WORLD, NO_LOSSES], early, [TIED], [BLOCKS, *REST]):
        if finding := judge(tests, *facts):
            return finding
    return None


# -- what is said --

FROZEN = "A weight that is not trained has no gradient: its grad is None. So there is nothing to add up."
NO_LOSSES = Test(
    "no losses",
    lambda f: f.no_losses,
    "a list of {updates} losses on the last rank, for {case}",
    "{shown}",
    "The last rank knows the losses. It returns one for each step.",
)
BLOCKS = Test(
    "other blocks",
    lambda f: not f.block_gap < 1e-11,
    "the blocks of rank {rank} as in one process, for {case}",
    "weights that differ by up to {block_gap:.3g}",
    "In the program as it was, these layers had the right gradients in step 0. Their gradients, the learning rate and "
    "the mean over micro-batches should stay as they were.",
)
WHYS: dict[str, Callable[[Facts], object]] = {
    "Embedding and head have one weight in one process, and its gradient is the sum of what both layers contribute. "
    "Here each of them has a copy, which it updates with its own part.": lambda f: f.is_like(lambda i, o: (i, o)),
    "The head's part of the gradient is lost. The embedding's copy has to be updated with the sum of both parts, "
    "before the head gets it.": lambda f: f.is_like(lambda i, o: (i, i)),
    "The embedding's part of the gradient is lost. The head's copy has to be updated with the sum of both parts.": (
        lambda f: f.is_like(lambda i, o: (o, o))
    ),
    "The update is half as large as in one process. The two parts are no estimates of one gradient, and are not "
    "averaged: the gradient of the weight is their sum.": lambda f: f.is_like(lambda i, o: ((i + o) / 2, (i + o) / 2)),
    "The gradient of the weight counts twice. A part must be added once, and a rank that has both layers has the sum "
    "already.": lambda f: f.is_like(lambda i, o: (2 * (i + o), 2 * (i + o))),
    "Only one of the two ranks has the sum of both parts of the gradient. Both need it: each updates its copy.": (
        lambda f: f.is_like(lambda i, o: (i + o, o)) or f.is_like(lambda i, o: (i, i + o))
    ),
    "The weight is right to several digits only. Its gradient is float64, and should not be rounded to less when it is "
    "exchanged.": lambda f: f.is_like(_sum, 1e-6),
    "Embedding and head have one weight in one process. In each step, both ranks have to update their copies with the "
    "same gradient: the sum of the embedding's part and the head's, once, over all micro-batches.": always,
}
TIED = Test(
    "other weight",
    lambda f: not f.off < 1e-11,
    "the weight of {layers} on rank {rank} as in one process, for {case}",
    "a weight that differs by up to {off:.3g}",
    WHYS,
)
REST = [
    Test(
        "other losses",
        lambda f: f.other_losses,
        "the losses {losses} on the last rank, for {case}",
        "{shown}",
        "The weights are right. The loss of a step is the mean over its micro-batches, before its update.",
    ),
    Test(
        "other bits",
        lambda f: f.apart > 0,
        "the same bits of the weight of embedding and head on both ranks, for {case}",
        "a difference of {apart:.3g}",
        "Sums that are rounded in another order differ by a bit, and the copies drift apart. Both ranks should update "
        "equal copies with the same bits of the gradient.",
    ),
    Test(
        "more calls",
        lambda f: f.sent and f.calls > f.calls_bound,
        "at most {calls_bound} collective calls of rank {rank}, for {case}",
        "{calls}",
        "One exchange in a step, between the two ranks that have the weight, is enough. In a call of all ranks, the "
        "ranks in the middle wait for something that they do not need. A communicator of two ranks can be made once, "
        "before the first step.",
    ),
    Test(
        "more bytes",
        lambda f: f.sent and f.sent.nbytes > f.bound,
        "at most {bound} bytes from rank {rank}, for {case}",
        "{sent.by}",
        "Only the two ranks that have the weight need to exchange its gradient: once in a step, when all micro-batches "
        "have added to it.",
    ),
]
