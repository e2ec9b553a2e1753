"""What e16_padding is asked: a step uses the mean over all its tokens, in one or two Allreduces.

The fault is rebuilt from https://github.com/huggingface/transformers/issues/34242 (sbwww, October 2024): with different
numbers of tokens on the ranks, DistributedDataParallel's mean over ranks is another loss than one process has. Pull
request 34373 is the repair. Between the micro-batches of one rank, https://unsloth.ai/blog/gradient and
https://huggingface.co/blog/gradient_accumulation found the same in that month. The numbers of
https://github.com/PrimeIntellect-ai/prime-rl/pull/1957 (samsja, March 2026) make it plain: beside a rank with five
tokens, the only token of another rank has five times the influence.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.clinic import demand_diagnosis
from mpcourse.course.check.cases.on_models import SIZES, on_real, on_virtual
from mpcourse.course.check.facts.messages import SLACK, THROUGH_WORLD, Sent, counting, other_than_world
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import Finding, Rule, Table, Test, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

# -- inputs --

RATE, KINDS, WIDTH, BESIDES = 0.5, 8, 10, 64
# The lengths of the sequences of each rank in two micro-batches, and in three. A sequence of one id has no token.
_TWO = [[[7, 3], [2, 5, 2]], [[2], [3, 2]], [[9, 6], [4, 8]], [[3, 1], [2, 6]]]
_THREE = [[[7], [3, 3], [2, 4]], [[2, 2], [8], [5, 6]], [[3], [9, 2], [4]], [[6, 3], [2], [2]]]
_SOME_EMPTY = [[[5, 1], [1]], [[1], [4, 4]], [[7, 2], [3]], [[1, 1], [2]]]
Lengths = Sequence[Sequence[Sequence[Sequence[int]]]]  # the same of each rank in each step
LAYOUTS: dict[str, Callable[[int], Lengths]] = {
    "two micro-batches": lambda size: [[_TWO[r]] for r in range(size)],
    "three micro-batches": lambda size: [[_THREE[r]] for r in range(size)],
    "a micro-batch without tokens": lambda size: [[_SOME_EMPTY[r]] for r in range(size)],
    "a rank without tokens": lambda size: [[[[1, 1], [1]] if 0 < r == size - 1 else _TWO[r]] for r in range(size)],
    "several steps": lambda size: [[_TWO[(r + step) % 4] for step in range(3)] for r in range(size)],
}
EMPTY = (
    "A micro-batch without tokens adds 0 to the sums of losses, gradients and tokens. A rank that has no token in a "
    "step makes the same collective calls as all others."
)
REFUTED = {
    "data": "The tokens of step 0 in ranks.log add up to 1023, as many as one.log has. Weighted by their numbers of "
    "tokens, the losses of the eight micro-batches have the mean 3.064896, which is the loss of the one process: the "
    "sequences are the same.",
    "learning rate": "The losses of the two runs differ in step 0 already. They were computed before the first update, "
    "so no learning rate can have changed them.",
    "padding": "Each loss in ranks.log is counted without padding: weighted by their numbers of tokens, the eight "
    "losses of step 0 have the mean 3.064896. That is the loss of the one process, which has other padding.",
    "rounding": "The losses of step 0 are 3.064896 and 3.131514: they differ in the second digit. Numbers in float64 "
    "are rounded in the sixteenth.",
    "weights": "At the end of ranks.log, each rank prints the same sum of its weights. In step 0 all ranks have those "
    "of the one process, too: the losses of their micro-batches, weighted by tokens, have its loss as their mean.",
}


class EarlierPlaces(nn.Module):
    """The mean over a place and those before it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(1) / torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None]


def _model() -> nn.Module:
    made = nn.Sequential(nn.Embedding(KINDS + 1, WIDTH), EarlierPlaces(), nn.Linear(WIDTH, KINDS + 1)).double()
    draw = torch.Generator().manual_seed(3)
    for p in made.parameters():
        p.data.copy_(torch.randn(p.shape, generator=draw, dtype=p.dtype))
    return made


def _steps(lengths: Lengths, rank: int) -> list[list[list[torch.Tensor]]]:
    draw = torch.Generator().manual_seed(rank + 1)
    return [
        [[torch.randint(1, KINDS + 1, (n,), generator=draw) for n in part] for part in step] for step in lengths[rank]
    ]


def _weights(model: nn.Module) -> np.ndarray:
    return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    for ranks in (comm, turned(comm)):
        for layout in LAYOUTS.values():
            lengths = layout(ranks.size)
            on_real(answer, ranks, functools.partial(_program, lengths), functools.partial(_judge, lengths))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    demand_diagnosis(answer, "tokens", REFUTED)
    for (name, layout), size in itertools.product(LAYOUTS.items(), SIZES):
        program, its_judge = functools.partial(_program, layout(size)), functools.partial(_judge, layout(size))
        stumbled = (f"a step on {size} ranks with {name} to end", EMPTY) if "without" in name else None
        on_virtual(answer, comm, size, program, its_judge, stumbled)


# -- observation --


@dataclass(frozen=True)
class Seen:
    """What a call on one rank did.

    foreign: a rank whose sequence this one gave to its model. lost: whether it did not run all of its own. held: of how
    many sequences it held activations at once.
    """

    losses: Any
    weights: np.ndarray
    foreign: int | None
    lost: bool
    held: int
    sent: Sent | None


def _program(lengths: Lengths, own: Answer, comm: Any) -> Seen:
    given, model = other_than_world(comm), _model()
    of_ranks = [
        {tuple(ids.tolist()) for step in _steps(lengths, r) for part in step for ids in part if len(ids) > 1}
        for r in range(len(lengths))
    ]
    mine, held = of_ranks[comm.rank], [0]
    ran: set[tuple[int, ...]] = set()

    def forward(_: nn.Module, inputs: tuple[torch.Tensor], logits: torch.Tensor) -> None:
        ran.update(tuple(row[row > 0].tolist()) for row in inputs[0])
        count = int((inputs[0][:, 1:] > 0).any(1).sum())  # those with a token: only they need a backward
        if logits.requires_grad and count:
            held.append(held[-1] + count)
            logits.register_hook(lambda _: held.append(held[-1] - count))

    model.register_forward_hook(forward)
    sent = counting(given)
    losses = own.call("train", given, model, _steps(lengths, comm.rank), RATE)
    foreign = next((r for r, theirs in enumerate(of_ranks) if ran & (theirs - mine)), None)
    return Seen(losses, _weights(model), foreign, bool(mine - ran), max(held), sent())


@dataclass(frozen=True)
class Step:
    """A step of all ranks. Each array has a row for each rank and a column for each micro-batch.

    n, sequences, places: how many tokens, sequences, and places with padding a micro-batch has. sums: along a third
    axis, the sum of its losses, and the gradient of that sum.
    """

    n: np.ndarray
    sequences: np.ndarray
    places: np.ndarray
    sums: np.ndarray

    ranks = property(lambda self: self.n.shape[0])
    parts = property(lambda self: self.n.shape[1])
    total = property(lambda self: self.n.sum())
    of_rank = property(lambda self: np.maximum(self.n.sum(1, keepdims=True), 1))
    of_column = property(lambda self: np.maximum(self.n.sum(0, keepdims=True), 1))
    in_means = property(lambda self: 1 / np.maximum(self.n, 1))  # how much a token counts in its micro-batch's mean

    def summed(self, way: "Way") -> np.ndarray:
        """Return the loss and its gradient, in which a token of each micro-batch counts in this way."""
        return (np.broadcast_to(way(self), self.n.shape)[..., None] * self.sums).sum((0, 1))


Way = Callable[[Step], Any]


def _right(s: Step) -> Any:
    return 1 / s.total


def _mean_of_means(s: Step) -> Any:
    return s.in_means / s.parts / s.ranks


def _step(model: nn.Module, lengths: Lengths, number: int) -> Step:
    def sums(part: list[torch.Tensor]) -> np.ndarray:
        losses = [F.cross_entropy(model(ids[None])[0, :-1], ids[1:], reduction="sum") for ids in part]
        loss = torch.stack(losses).sum()
        return np.concatenate([[loss.item()], *(g.ravel() for g in torch.autograd.grad(loss, [*model.parameters()]))])

    def of_all(measure: Callable[[list[torch.Tensor]], Any]) -> np.ndarray:
        return np.array([[measure(part) for part in _steps(lengths, r)[number]] for r in range(len(lengths))])

    tokens, places = (lambda part: sum(map(len, part)) - len(part)), (lambda part: max(map(len, part)) * len(part))
    return Step(of_all(tokens), of_all(len), of_all(places), of_all(sums))


def _trained(lengths: Lengths) -> tuple[Step, list[float], np.ndarray]:
    """Train in one process; return the first step, the losses, and the weights at the end."""
    model, losses = _model(), []
    first = _step(model, lengths, 0)
    for number in range(len(lengths[0])):
        loss, *gradient = _step(model, lengths, number).summed(_right)
        losses.append(float(loss))
        nn.utils.vector_to_parameters(torch.from_numpy(_weights(model) - RATE * np.array(gradient)), model.parameters())
    return first, losses, _weights(model)


@dataclass(frozen=True)
class Facts:
    """What a call on one rank did, beside what it should have done.

    step, right_losses, right_weights: as `_trained` returns them. everyone: what was seen of all ranks. noun: whether
    the update or the loss is looked at.
    """

    rank: int
    lengths: Lengths
    everyone: Sequence[Seen]
    step: Step
    right_losses: list[float]
    right_weights: np.ndarray
    noun: str = "update"

    seen = property(lambda self: self.everyone[self.rank])
    sent = property(lambda self: self.seen.sent)
    size = property(lambda self: len(self.lengths))
    steps = property(lambda self: len(self.right_losses))
    losses = property(lambda self: np.array(self.seen.losses, float))

    @property
    def no_losses(self) -> bool:
        try:
            return self.losses.shape != (self.steps,)
        except (TypeError, ValueError):
            return True

    # Of a single step, what explains a failure: the loss, or the gradient that the weights have changed by.

    @property
    def got(self) -> np.ndarray:
        return self.losses if self.noun == "loss" else (_weights(_model()) - self.seen.weights) / RATE

    def want(self, way: Way) -> np.ndarray:
        return self.step.summed(way)[slice(0, 1) if self.noun == "loss" else slice(1, None)]

    def gives(self, way: Way) -> bool:
        return _close(self.got, self.want(way))

    def times(self, way: Way) -> float:
        """Return how many times what this way gives `got` is; 0 where it is no multiple."""
        want = self.want(way)
        factor = float(self.got @ want / (want @ want))
        return factor if _close(self.got, factor * want) else 0.0

    divisor = property(lambda self: next((name for name, way in DIVISORS.items() if self.gives(way)), ""))
    of_means = property(lambda self: self.times(_mean_of_means))
    of_right = property(lambda self: self.times(_right))
    own_loss = property(lambda self: self.step.sums[self.rank, :, 0].sum() / self.step.of_rank[self.rank])

    # What sentences show.

    text = property(lambda self: f"{counted(self.steps, 'step')} on {counted(self.size, 'rank')}")
    shown = property(lambda self: short(self.seen.losses))
    at = property(lambda self: int(np.abs(self.seen.weights - self.right_weights).argmax()))
    right_weight = property(lambda self: self.right_weights[self.at].item())
    weight = property(lambda self: self.seen.weights[self.at].item())
    sum_on_0 = property(lambda self: self.everyone[0].weights.sum().item())
    sum_here = property(lambda self: self.seen.weights.sum().item())
    most = property(lambda self: max(sum(n > 1 for n in part) for step in self.lengths[self.rank] for part in step))
    numbers = property(lambda self: len(self.right_weights) + BESIDES)
    bound = property(lambda self: self.steps * (2 * (self.size - 1) * 8 * self.numbers // self.size + SLACK))


def _close(got: Any, want: Any) -> bool:
    return np.allclose(got, want, rtol=1e-9, atol=1e-12)


def _judge(lengths: Lengths, everyone: Sequence[Seen]) -> Finding | None:
    oracle = _trained(lengths)
    facts = [Facts(rank, lengths, everyone, *oracle) for rank in range(len(everyone))]
    of_losses = [replace(each, noun="loss") for each in facts]
    return judge(RANKS, *facts) or judge(UPDATES, *facts) or judge(LOSSES, *of_losses) or judge(COSTS, *facts)


# -- what is said --

MEANS: dict[str, Way] = {  # how much a token of each micro-batch counts
    "That is still the mean of the micro-batches' means. A token of a micro-batch with few tokens counts more in it "
    "than one of a micro-batch with many.": _mean_of_means,
    "Ranks count by their tokens, but on each rank it is the mean of the micro-batches' means. Let micro-batches "
    "count by their tokens, too.": lambda s: s.in_means / s.parts * s.of_rank / s.total,
    "Right on each rank, but then it is the mean over ranks, in which a rank with few tokens counts as much as one "
    "with many. Divide by the tokens of all ranks.": lambda s: 1 / s.of_rank / s.ranks,
    "Each rank takes the mean over its own tokens, and these means are summed over ranks. Divide by the tokens of all "
    "ranks.": lambda s: 1 / s.of_rank,
    "Each micro-batch is divided by the tokens that all ranks have in the micro-batch of this number. Divide by the "
    "tokens of all micro-batches.": lambda s: 1 / s.of_column / s.parts,
    "The mean of a micro-batch is weighted by its number of sequences. A long sequence has more tokens than a short "
    "one: the weight is the number of tokens.": lambda s: s.in_means * s.sequences / s.sequences.sum(),
    "The mean of a rank is weighted by its number of sequences. Its weight is its number of tokens, and so is that of "
    "a micro-batch.": lambda s: s.in_means / s.parts * s.sequences.sum(1, keepdims=True) / s.sequences.sum(),
}
DIVISORS: dict[str, Way] = {  # the same, where all tokens count the same
    "nothing, so it grows with the batch": lambda s: 1,
    "the number of ranks": lambda s: 1 / s.ranks,
    "the number of micro-batches": lambda s: 1 / s.n.size,
    "the number of sequences": lambda s: 1 / s.sequences.sum(),
    "the number of places, with padding": lambda s: 1 / s.places.sum(),
    "the number of ids, with the first ones, which nothing predicts": lambda s: 1 / (s.n + s.sequences).sum(),
    "the tokens of rank 0": lambda s: 1 / s.n[0].sum(),
    "the tokens of the last micro-batches": lambda s: 1 / s.n[:, -1].sum(),
    "the ranks' mean number of tokens": lambda s: s.ranks / s.total,
    "the number of tokens, and by that of ranks": lambda s: 1 / s.total / s.ranks,
    "the number of tokens, and by that of micro-batches": lambda s: 1 / s.total / s.parts,
}
WHYS: list[Rule | Table | str] = [
    {
        f"NaN is 0 / 0: the mean over no tokens. {EMPTY}": lambda f: np.isnan(f.got).any(),
        "Sequences are cut or left out, so the model does not learn from all tokens. The batch has to stay as it is.": (
            lambda f: any(seen.lost for seen in f.everyone)
        ),
        "Right in one step, but not in several: gradients, sums and counts have to begin with 0 in each step.": (
            lambda f: f.steps > 1
        ),
        "Right to some digits: numbers went through float32. Parameters are float64, and so is the buffer.": (
            lambda f: shorter_dtype(f.got, f.want(_right)) == "float32"
        ),
    },
    {sentence: functools.partial(Facts.gives, way=way) for sentence, way in MEANS.items()},
    {
        "The sum of all tokens' losses is divided by {divisor}. Divide by the number of tokens that all ranks have in "
        "all micro-batches, once.": lambda f: f.divisor,
        "That is this rank's own loss. All ranks return the loss of all tokens of the step.": (
            lambda f: f.noun == "loss" and _close(f.got, f.own_loss)
        ),
        "The update is {of_means:.4g} times that of the program as you found it. A smaller or larger update does not "
        "change that a token of a short micro-batch counts more than one of a long micro-batch.": (
            lambda f: f.noun == "update" and f.of_means
        ),
        "Right but for a factor of {of_right:.4g}. The task asks for rate times the gradient of the mean.": (
            lambda f: f.noun == "update" and f.of_right
        ),
    },
    "Add up the losses of all tokens over micro-batches and ranks, and count the tokens, without padding. Divide the "
    "one sum by the other, once.",
]
RANKS = [
    THROUGH_WORLD,
    Test(
        "no losses",
        lambda f: f.no_losses,
        "a loss of each step on rank {rank}, for {text}",
        "{shown}",
        "Return a list with one loss for each step, on all ranks.",
    ),
    Test(
        "sequences of others",
        lambda f: f.seen.foreign is not None,
        "rank {rank} to run its own micro-batches",
        "it runs a sequence of rank {seen.foreign}",
        "Each rank runs its own sequences, and so has its share of the work. Sums and counts travel between ranks, "
        "sequences do not.",
    ),
    Test(
        "copies differ",
        lambda f: not _close(f.seen.weights, f.everyone[0].weights),
        "the same weights on all ranks after {text}",
        "weights with the sum {sum_on_0} on rank 0, and {sum_here} on rank {rank}",
        "The ranks have different weights now: they divide by different numbers, or have different sums. All of them "
        "need the same update.",
    ),
]
UPDATES = [
    Test(
        "another update",
        lambda f: not _close(f.seen.weights, f.right_weights),
        "weight {at} to be {right_weight} after {text}",
        "{weight} on rank {rank}",
        WHYS,
    )
]
LOSSES = [
    Test(
        "another loss",
        lambda f: not _close(f.losses, f.right_losses),
        "losses {right_losses} for {text}",
        "{shown} on rank {rank}",
        WHYS,
    )
]
COSTS = [
    Test(
        "several at once",
        lambda f: f.seen.held > f.most,
        "activations of at most {most} sequences with tokens in memory on rank {rank}, as in one micro-batch",
        "{seen.held} at once",
        "A micro-batch is what fits into memory: run each alone, and its backward before the next one.",
    ),
    Test(
        "more calls",
        lambda f: f.sent and len(f.sent.calls) > 2 * f.steps,
        "at most two collective calls in a step, for {text}",
        "{sent.by}",
        "Each call lets all ranks wait for the slowest. The count and the loss fit into the buffer of the gradients.",
    ),
    Test(
        "more bytes",
        lambda f: f.sent and f.sent.nbytes > f.bound,
        "at most {bound} bytes from rank {rank}, for {text}",
        "{sent.by}",
        "The gradients travel once in a step, in one Allreduce. First add up those of all micro-batches. A call like "
        "Allgather sends more, the more ranks there are.",
    ),
]
