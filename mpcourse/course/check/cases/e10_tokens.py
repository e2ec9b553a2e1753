"""What e10_tokens is asked: the gradient of the mean over all tokens, whatever micro-batches and ranks have of them."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Finding, Program, on_real, on_virtual, same_bits
from mpcourse.course.check.facts.messages import THROUGH_WORLD, Sent, counting, is_virtual, other_than_world
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import Rule, Test, always, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

# -- inputs --

NAME = "gradients_of_token_mean"
IGNORED, KINDS, WIDTH, PADDED = -100, 4, 3, 6
Layout = Sequence[Sequence[int]]  # for each rank, how many tokens count in each of its micro-batches

_PLAIN = [[5, 2], [2, 3], [6, 4], [1, 2]]
_LAYOUTS: dict[str, Callable[[int], Layout]] = {
    "plain": lambda size: _PLAIN[:size],
    "full": lambda size: [[PADDED, PADDED]] * size,
    "uneven": lambda size: [[3], [2, 4, 1], [6, 5], [1, 1, 2, 3]][:size],
    "empty micro-batch": lambda size: [[4, 0, 2], [0, 5], [3, 1], [2, 0]][:size],
    "rank without tokens": lambda size: [*_PLAIN[: size - 1], [0, 0]] if size > 1 else [[3, 1]],
    "rank without micro-batches": lambda size: [[], *_PLAIN[1:size]] if size > 1 else [[2, 5]],
}
EMPTY = "A part without tokens adds 0 to both sums, and takes part in every collective call like any other."


def _model() -> nn.Module:
    """Return a model in which two layers share a weight."""
    first, second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    second.weight = first.weight
    model = nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), nn.Linear(WIDTH, KINDS)).double()
    draw = torch.Generator().manual_seed(5)
    for p in model.parameters():
        p.data.copy_(torch.randn(p.shape, generator=draw, dtype=p.dtype))
    return model


def _batches(layout: Layout, rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    made = []
    for number, tokens in enumerate(layout[rank]):
        draw = torch.Generator().manual_seed(100 * rank + number + 1)
        target = torch.randint(KINDS, (PADDED,), generator=draw)
        target[torch.randperm(PADDED, generator=draw)[tokens:]] = IGNORED
        made.append((torch.randn(PADDED, WIDTH, generator=draw, dtype=torch.float64), target))
    return made


class Part(NamedTuple):
    """A micro-batch's tokens, its sum of losses, and the gradient of that sum, all parameters in one row."""

    tokens: int
    loss: float
    gradient: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Loss and gradient of the mean over this part; zeros where it has no token."""
        return self.total / max(self.tokens, 1)

    @property
    def total(self) -> np.ndarray:
        return np.array([self.loss, *self.gradient])


@functools.cache
def _parts(layout: tuple[tuple[int, ...], ...]) -> list[list[Part]]:
    """Return what each micro-batch of each rank adds to the two sums."""
    parts, model = [], _model()
    for rank in range(len(layout)):
        row = []
        for x, target in _batches(layout, rank):
            loss = F.cross_entropy(model(x), target, ignore_index=IGNORED, reduction="sum")
            each = torch.autograd.grad(loss, list(model.parameters()))
            gradient = np.concatenate([g.numpy().ravel() for g in each])
            row.append(Part(int((target != IGNORED).sum()), loss.item(), gradient))
        parts.append(row)
    return parts


def _layout_text(layout: Layout) -> str:
    each = [
        f"{' and '.join(map(str, row)) or 'none, without micro-batches,'} on rank {r}" for r, row in enumerate(layout)
    ]
    return f"tokens {', '.join(each)}"


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    for ranks in (comm, turned(comm)):
        for case in ("plain", "empty micro-batch", "rank without tokens"):
            layout = _LAYOUTS[case](min(ranks.size, 4))
            on_real(answer, ranks, _program(layout), functools.partial(_judge, layout))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for case, make in _LAYOUTS.items():
        for size in SIZES:
            layout = make(size)
            stumbled = None if case in ("plain", "full") else (f"the same with {_layout_text(layout)}", EMPTY)
            on_virtual(answer, comm, size, _program(layout), functools.partial(_judge, layout), stumbled)


# -- observation --


class Seen(NamedTuple):
    """What a call on one rank did.

    rows: the most of which activations were in memory at once. sent: known of virtual ranks.
    """

    loss: Any
    gradients: list[np.ndarray | None]
    rows: int
    sent: Sent | None


def _program(layout: Layout) -> Program:
    def program(own: Answer, comm: Any) -> Seen:
        model, held, rows = _model(), [0], [0]
        batches = _batches(layout, comm.rank)
        without = [x for x, target in batches if (target == IGNORED).all()]  # such a one needs no backward

        def ran(_: nn.Module, inputs: tuple[torch.Tensor], logits: torch.Tensor) -> None:
            count = len(logits)
            if logits.requires_grad and not any(inputs[0] is x for x in without):
                held[0] += count
                rows.append(held[0])
                logits.register_hook(lambda _: held.__setitem__(0, held[0] - count))

        model.register_forward_hook(ran)
        comm = other_than_world(comm)
        sent = counting(comm) if is_virtual(comm) else lambda: None
        loss = own.call(NAME, comm, model, batches, changes=(model,))
        gradients = [None if p.grad is None else p.grad.numpy().copy() for p in model.parameters()]
        return Seen(loss, gradients, max(rows), sent())

    return program


def _close(got: Any, want: Any) -> bool:
    return np.allclose(got, want, rtol=1e-9, atol=1e-12)


@dataclass(frozen=True)
class Facts:
    """What calls did, seen from `rank`. noun: whether the loss or the gradient is looked at."""

    rank: int
    layout: Layout
    everyone: Sequence[Seen]
    noun: str = "gradient"

    size = property(lambda self: len(self.everyone))
    seen = property(lambda self: self.everyone[self.rank])
    got = property(lambda self: np.array([self.seen.loss]) if self.noun == "loss" else self.gradient)
    of = property(lambda self: slice(0, 1) if self.noun == "loss" else slice(1, None))
    no_gradient = property(lambda self: any(g is None for g in self.seen.gradients))
    gradient = functools.cached_property(lambda self: np.concatenate([g.ravel() for g in self.seen.gradients]))
    parts = functools.cached_property(lambda self: _parts(tuple(map(tuple, self.layout))))
    everything = property(lambda self: [part for row in self.parts for part in row])
    own = property(lambda self: self.parts[self.rank])

    # Sums: a loss, and the gradient behind it.

    zero = property(lambda self: np.zeros_like(self.everything[0].total))
    tokens = property(lambda self: sum(part.tokens for part in self.everything))
    own_tokens = property(lambda self: sum(part.tokens for part in self.own))
    total = functools.cached_property(lambda self: self.sum(self.everything))
    mean = property(lambda self: self.total / self.tokens)
    want = property(lambda self: self.mean[self.of])
    means = property(lambda self: sum((part.mean for part in self.everything), self.zero))
    own_total = property(lambda self: self.sum(self.own))
    together = property(lambda self: list(zip(*self.parts, strict=False)))
    last = property(lambda self: self.sum([row[-1] for row in self.parts if row]))

    def sum(self, parts: Sequence[Part]) -> np.ndarray:
        return sum((part.total for part in parts), self.zero)

    def mean_over(self, parts: Sequence[Part]) -> np.ndarray:
        """The mean over the tokens of these; zeros where there is none."""
        return self.sum(parts) / max(1, sum(part.tokens for part in parts))

    @property
    def of_ranks(self) -> np.ndarray:
        """The sum of the ranks' own means."""
        return sum((self.mean_over(row) for row in self.parts), self.zero)

    @property
    def of_means(self) -> list[np.ndarray]:
        """Each rank's mean of its micro-batches' means."""
        return [sum((p.mean for p in row), self.zero) / len(row) if row else self.zero for row in self.parts]

    @property
    def weighted_means(self) -> np.ndarray:
        """The mean of the ranks' means of means, each of which counts by its tokens."""
        counts = [sum(part.tokens for part in row) for row in self.parts]
        return sum((mean * n for mean, n in zip(self.of_means, counts, strict=True)), self.zero) / self.tokens

    @property
    def again(self) -> np.ndarray:
        """What is summed over ranks after each micro-batch is summed again after the next one."""
        again = self.zero
        for micro_batches in self.together:
            again = self.size * again + self.sum(micro_batches)
        return again

    def gives(self, value: np.ndarray) -> bool:
        return _close(self.got, value[self.of])

    @property
    def tied_twice(self) -> np.ndarray:
        """The gradient of the first weight, which two layers share, summed over ranks once more."""
        again = self.mean.copy()
        again[1 : 1 + WIDTH * WIDTH] *= self.size
        return again

    rounded = property(lambda self: shorter_dtype(self.got, self.want))

    @property
    def counted(self) -> float | None:
        """As if how many tokens counted; None where the result is no multiple of the right one."""
        factor = self.got[0] / self.want[0]
        return self.tokens / factor if factor and _close(self.got, factor * self.want) else None

    # What sentences show.

    sent = property(lambda self: self.seen.sent)
    layout_text = property(lambda self: _layout_text(self.layout))
    at = property(lambda self: int(np.flatnonzero(~np.isclose(self.got, self.want, rtol=1e-9, atol=1e-12))[0]))
    right = property(lambda self: repr(self.want[self.at].item()))
    found = property(lambda self: repr(float(self.got[self.at])))
    right_loss = property(lambda self: repr(self.mean[0].item()))
    shown_loss = property(lambda self: short(self.seen.loss))
    factor = property(lambda self: f"{self.tokens / self.counted:.4g}")


def _judge(layout: Layout, results: Sequence[Seen]) -> Finding | None:
    everyone = [Facts(rank, layout, results) for rank in range(len(results))]
    of_loss = [Facts(rank, layout, results, "loss") for rank in range(len(results))]
    if finding := judge(GRADIENTS, *everyone) or judge(LOSS, *of_loss):
        return finding
    rows: dict[str, list[np.ndarray | None]] = {"the loss": [np.array([seen.loss]) for seen in results]}
    rows |= {f"gradient {i}": [seen.gradients[i] for seen in results] for i in range(len(results[0].gradients))}
    return same_bits(rows)


# -- what is said --

WHYS = [
    Rule("NaN", lambda f: np.isnan(f.got).any(), f"NaN is 0 / 0: the mean over no tokens. {EMPTY}"),
    Rule(
        "zeros",
        lambda f: not f.got.any(),
        "All zeros: was backward called on each micro-batch's loss, and what it added kept?",
    ),
    Rule(
        "rounded",
        lambda f: f.rounded,
        "Right to some digits: numbers were in a shorter dtype on their way. Losses and gradients keep the model's.",
    ),
    Rule(
        "own mean",
        lambda f: f.gives(f.own_total / max(1, f.own_tokens)),
        "That is this rank's own {noun}: nothing was summed over ranks.",
    ),
    Rule(
        "own share",
        lambda f: f.gives(f.own_total / f.tokens),
        "Only this rank's share of the {noun}: sum over ranks, and on all of them, too.",
    ),
    Rule(
        "mean of all means",
        lambda f: f.gives(f.means / len(f.everything)),
        "That is the mean of the micro-batches' means, in which the tokens of a short one count more. Divide the sum "
        "over all tokens by their number.",
    ),
    Rule(
        "mean of ranks' means",
        lambda f: f.gives(f.of_ranks / f.size),
        "Right on each rank, and then the mean over ranks, in which a rank with few tokens counts as much as one with "
        "many. Divide by the tokens of all ranks before the sum over ranks.",
    ),
    Rule(
        "sum of ranks' means",
        lambda f: f.gives(f.of_ranks),
        "Each rank divided by its own tokens, and the means were summed: divide by all tokens.",
    ),
    Rule(
        "means within ranks",
        lambda f: f.gives(f.weighted_means),
        "Ranks count by their tokens, and within a rank it is the mean of the micro-batches' means: divide sums of "
        "losses.",
    ),
    Rule(
        "sum of means of means",
        lambda f: f.gives(sum(f.of_means, f.zero)),
        "Means over a rank's micro-batches were summed over ranks: divide by all ranks' tokens.",
    ),
    Rule(
        "sum of all means",
        lambda f: f.gives(f.means),
        "The micro-batches' means were summed: divide their sums by all tokens.",
    ),
    Rule("sum", lambda f: f.gives(f.total), "The sum over all tokens, not divided by their number."),
    Rule(
        "over ranks",
        lambda f: f.gives(f.total / f.size),
        "The sum over all tokens, divided by the number of ranks: divide by the number of tokens.",
    ),
    Rule(
        "over ranks, too",
        lambda f: f.gives(f.mean / f.size),
        "Divided by the number of ranks, too: all ranks' tokens are counted already.",
    ),
    Rule(
        "padding",
        lambda f: f.gives(f.total / (PADDED * len(f.everything))),
        "Padding was counted: a target of IGNORED is no token.",
    ),
    Rule(
        "over micro-batches",
        lambda f: f.gives(f.total / len(f.everything)),
        "Divided by the number of micro-batches: divide by the number of tokens.",
    ),
    Rule(
        "over own tokens",
        lambda f: f.gives(f.total / max(1, f.own_tokens)),
        "Divided by this rank's own tokens: all ranks divide by those of all of them.",
    ),
    Rule(
        "micro-batch by micro-batch",
        lambda f: f.own and f.gives(sum(map(f.mean_over, f.together), f.zero)),
        "Each micro-batch is divided by the tokens that all ranks have in that one: count all micro-batches'.",
    ),
    Rule(
        "summed again and again",
        lambda f: f.own and f.gives(f.again / f.tokens),
        "Summed over ranks after each micro-batch, and what was summed before with it: sum once.",
    ),
    Rule(
        "the last one",
        lambda f: f.own and f.gives(f.last / f.tokens),
        "Only each rank's last micro-batch is in it: all of them add up.",
    ),
    Rule(
        "over micro-batches, too",
        lambda f: f.own and f.gives(f.mean / len(f.own)),
        "Divided by the number of micro-batches, too: the tokens of all micro-batches are counted already.",
    ),
    Rule(
        "times ranks",
        lambda f: f.gives(f.mean * f.size),
        "Too large by a factor that is the number of ranks: divide by the sum of all ranks' tokens, not by their mean.",
    ),
    Rule(
        "a shared weight twice",
        lambda f: f.noun == "gradient" and f.gives(f.tied_twice),
        "The gradient of a weight that two layers share is summed over ranks twice: model.parameters() has it once.",
    ),
    Rule(
        "another count",
        lambda f: f.counted and f.counted > 0.5 and abs(f.counted - round(f.counted)) < 1e-6,
        "Divided as if {counted:.4g} tokens counted: {tokens} do, whose target is not IGNORED.",
    ),
    Rule(
        "another factor",
        lambda f: f.counted,
        "Right but for a factor of {factor}: the sum over all tokens is divided once, by their number.",
    ),
    Rule(
        "another sum",
        always,
        "Sum the {noun} over all tokens of all micro-batches and ranks, but those with the target IGNORED, and divide "
        "by the number of these tokens, once.",
    ),
]
WHYS_NONE = [
    Rule(
        "no tokens",
        lambda f: not sum(f.layout[f.rank]),
        "A rank without tokens has a gradient, too: that of all ranks. Begin with zeros.",
    ),
    Rule("no backward", always, "loss.backward() fills in .grad: was it called for each micro-batch?"),
]
GRADIENTS = [
    THROUGH_WORLD,
    Test(
        "None", lambda f: f.no_gradient, "a gradient of every parameter, with {layout_text}", ".grad is None", WHYS_NONE
    ),
    Test(
        "several at once",
        lambda f: f.seen.rows > PADDED,
        f"activations of one micro-batch at a time in memory, {PADDED} rows",
        "{seen.rows} rows at once",
        "A micro-batch is what fits into memory: run each alone, and its backward before the next one.",
    ),
    Test(
        "another gradient",
        lambda f: not _close(f.got, f.want),
        "element {at} of the gradient to be {right} on rank {rank}, with {layout_text}",
        "{found}",
        WHYS,
    ),
]
WHYS_TYPE = [
    Rule("None", lambda f: f.seen.loss is None, "Nothing came back: is the mean loss returned?"),
    Rule("no float", always, "A float was asked: .item()."),
]
LOSS_ASKED = "a loss of {right_loss} on rank {rank}, with {layout_text}"
LOSS = [
    Test("no float", lambda f: not isinstance(f.seen.loss, float), LOSS_ASKED, "{shown_loss}", WHYS_TYPE),
    Test("another loss", lambda f: not np.isclose(f.seen.loss, f.mean[0], rtol=1e-9), LOSS_ASKED, "{shown_loss}", WHYS),
]
