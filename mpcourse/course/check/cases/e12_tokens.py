"""What e12_tokens is asked: the gradient of the mean over all tokens, whatever micro-batches and ranks have of them."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Finding, Program, on_real, on_virtual, same_bits
from mpcourse.course.check.facts.gradients import Row, copies_of
from mpcourse.course.check.facts.messages import THROUGH_WORLD, Sent, counting, other_than_world
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import judge, rules, tests
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
IN_EVAL_MODE = "full"  # the layout with which the model is given in eval mode
UNEVEN = (
    "Ranks have different numbers of micro-batches here. What is made once for each of them, such as a collective call "
    "in the loop, is not made equally often on all ranks."
)
EMPTY = "A part without tokens adds 0 to both sums, and takes part in every collective call like any other."


class EarlierPlaces(nn.Module):
    """The mean over a place and those before it: as attention does, it mixes places."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(0) / torch.arange(1, len(x) + 1, dtype=x.dtype)[:, None]


def _model() -> nn.Module:
    """Return a model in which two layers share a weight, and the output of a place depends on those before it."""
    first, second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    second.weight = first.weight
    model = nn.Sequential(first, nn.Tanh(), EarlierPlaces(), second, nn.Tanh(), nn.Linear(WIDTH, KINDS)).double()
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


@functools.cache
def _sums(layout: tuple[tuple[int, ...], ...]) -> list[np.ndarray]:
    """Return for each rank an array with a row for each micro-batch.

    A row holds the number of its tokens, the sum of their losses, and the gradient of that sum by all parameters.
    """
    model, sums = _model(), []
    for rank in range(len(layout)):
        rows = [np.zeros(2 + sum(p.numel() for p in model.parameters()))]
        for x, target in _batches(layout, rank):
            loss = F.cross_entropy(model(x), target, ignore_index=IGNORED, reduction="sum")
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            tokens = (target != IGNORED).sum()
            rows.append(np.concatenate([[tokens, loss.item()], *(g.numpy().ravel() for g in gradients)]))
        sums.append(np.array(rows[1:]).reshape(-1, len(rows[0])))
    return sums


def means(sums: np.ndarray) -> np.ndarray:
    """Return the mean loss and its gradient of each row; zeros where it has no token."""
    return sums[..., 1:] / np.maximum(sums[..., :1], 1)


def _layout_text(layout: Layout) -> str:
    each = [
        f"{' and '.join(map(str, row)) or 'none, without micro-batches,'} on rank {r}" for r, row in enumerate(layout)
    ]
    return f"tokens {', '.join(each)}"


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    for ranks in (comm, turned(comm)):
        for case in ("plain", "empty micro-batch", "rank without tokens"):
            layout = _LAYOUTS[case](min(ranks.size, 4))
            on_real(answer, ranks, _program(layout), _judge)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    for case, make in _LAYOUTS.items():
        for size in SIZES:
            layout = make(size)
            why = EMPTY if any(not sum(row) or 0 in row for row in layout) else UNEVEN
            stumbled = None if case in ("plain", "full") else (f"the same with {_layout_text(layout)}", why)
            on_virtual(answer, comm, size, _program(layout, case != IN_EVAL_MODE), _judge, stumbled)


# -- observation --


def _program(layout: Layout, training: bool = True) -> Program:
    def program(own: Answer, comm: Any) -> Facts:
        rank, model, batches = comm.rank, _model().train(training), _batches(layout, comm.rank)
        held, rows, ran, modes = 0, [0], [], set()
        without = [x for x, target in batches if (target == IGNORED).all()]  # such a one needs no backward

        def forward(_: nn.Module, inputs: tuple[torch.Tensor], logits: torch.Tensor) -> None:
            nonlocal held
            count = len(logits)
            ran.append(inputs[0].detach().clone())
            modes.add(model.training)
            if logits.requires_grad and not any(inputs[0] is x for x in without):
                held += count
                rows.append(held)
                logits.register_hook(functools.partial(backward, count))

        def backward(count: int, _: torch.Tensor) -> None:
            nonlocal held
            held -= count

        model.register_forward_hook(forward)
        others = [(r, x) for r in range(len(layout)) if r != rank for x, _ in _batches(layout, r)]
        comm = other_than_world(comm)
        sent = counting(comm)
        loss = own.call(NAME, comm, model, batches, changes=(model,))
        foreign = next((r for r, x in others if any(torch.equal(x, one) for one in ran)), None)
        cut = any(len(x) < PADDED for x in ran)
        modes.add(model.training)
        changed = modes != {training}
        mode = ("eval", "train")[training]
        return Facts(rank, layout, loss, copies_of(model.parameters()), max(rows), foreign, sent(), cut, mode, changed)

    return program


def _close(got: Any, want: Any) -> bool:
    return np.allclose(got, want, rtol=1e-9, atol=1e-12)


@dataclass(frozen=True)
class Facts:
    """What a call on `rank` did.

    rows: the most rows whose activations were in memory at once. foreign: a rank whose micro-batch this one ran. sent:
    known of virtual ranks. cut: whether the model was given some places of a micro-batch only. mode: in which it is
    given; mode_changed: whether it was in the other one in a forward, or is afterwards. noun: whether the loss or the
    gradient is looked at. everyone: facts of all ranks.
    """

    rank: int
    layout: Layout
    loss: Any
    gradients: list[Row]
    rows: int
    foreign: int | None
    sent: Sent | None
    cut: bool
    mode: str
    mode_changed: bool
    noun: str = "gradient"
    everyone: Sequence["Facts"] = ()

    size = property(lambda self: len(self.layout))
    of = property(lambda self: slice(0, 1) if self.noun == "loss" else slice(1, None))

    @functools.cached_property
    def got(self) -> np.ndarray:
        return np.concatenate([np.ravel(row) for row in ([self.loss], *self.gradients)[self.of]])

    # Arrays of tokens, a sum of losses and the gradient of that sum: of each rank's micro-batches, of all of them ...
    each = functools.cached_property(lambda self: _sums(tuple(map(tuple, self.layout))))
    every = property(lambda self: np.concatenate(self.each))
    whole = functools.cached_property(lambda self: self.every.sum(0))
    ranks = property(lambda self: np.array([rows.sum(0) for rows in self.each]))
    own = property(lambda self: self.ranks[self.rank])
    # ... and of the first micro-batches of all ranks, of the second ones, as far as all ranks have some.
    columns = property(lambda self: sum(rows[: min(map(len, self.each))] for rows in self.each))

    tokens = property(lambda self: int(self.whole[0]))
    total = property(lambda self: self.whole[1:])
    mean = property(lambda self: self.total / self.tokens)
    want = property(lambda self: self.mean[self.of])
    means_within = property(lambda self: np.array([means(rows).sum(0) / max(1, len(rows)) for rows in self.each]))

    def gives(self, value: np.ndarray) -> bool:
        return _close(self.got, value[self.of])

    # Tests.

    other_mode = property(lambda self: "eval" if self.mode == "train" else "train")
    without_tokens = property(lambda self: not self.own[0])
    no_gradient = property(lambda self: any(g is None for g in self.gradients))
    several_at_once = property(lambda self: self.rows > PADDED)
    of_others = property(lambda self: self.foreign is not None)
    another_gradient = property(lambda self: not _close(self.got, self.want))
    no_loss = property(lambda self: self.loss is None)
    on_others = property(lambda self: any(facts.loss is not None for facts in self.everyone))
    no_float = property(lambda self: not isinstance(self.loss, float))
    another_loss = property(lambda self: not np.isclose(self.loss, self.mean[0], rtol=1e-9))

    # What known mistakes make of the mean.

    nan = property(lambda self: np.isnan(self.got).any())
    zeros = property(lambda self: not self.got.any())
    rounded = property(lambda self: shorter_dtype(self.got, self.want))
    own_mean = property(lambda self: self.gives(means(self.own)))
    own_share = property(lambda self: self.gives(self.own[1:] / self.tokens))
    allreduced = property(lambda self: 2 * (self.size - 1) * self.total[1:].nbytes // self.size)  # bytes, for gradients
    sent_as_gradients = property(lambda self: self.sent and self.sent.nbytes >= self.allreduced)
    all_own_shares = property(lambda self: all(not f.no_gradient and f.own_share for f in self.everyone))
    summed_elsewhere = property(lambda self: self.sent_as_gradients and self.noun == "gradient" and self.all_own_shares)
    mean_of_all_means = property(lambda self: self.gives(means(self.every).mean(0)))
    mean_of_ranks = property(lambda self: self.gives(means(self.ranks).mean(0)))
    sum_of_ranks = property(lambda self: self.gives(means(self.ranks).sum(0)))
    means_weighted = property(lambda self: self.gives(self.ranks[:, 0] @ self.means_within / self.tokens))
    means_within_summed = property(lambda self: self.gives(self.means_within.sum(0)))
    sum_of_all_means = property(lambda self: self.gives(means(self.every).sum(0)))
    no_mean = property(lambda self: self.gives(self.total))
    over_ranks = property(lambda self: self.gives(self.total / self.size))
    over_ranks_too = property(lambda self: self.gives(self.mean / self.size))
    padding = property(lambda self: self.gives(self.total / (PADDED * len(self.every))))
    over_parts = property(lambda self: self.gives(self.total / len(self.every)))
    over_own_tokens = property(lambda self: self.gives(self.total / max(1, self.own[0])))
    one_by_one = property(lambda self: self.gives(means(self.columns).sum(0)))
    last_alone = property(lambda self: self.gives(sum(rows[-1] for rows in self.each if len(rows))[1:] / self.tokens))
    over_parts_too = property(lambda self: self.gives(self.mean / max(1, len(self.each[self.rank]))))
    times_ranks = property(lambda self: self.gives(self.mean * self.size))

    @property
    def again_and_again(self) -> bool:
        """Whether what is summed over ranks after each micro-batch is summed again after the next one."""
        times = self.size ** np.arange(len(self.columns))[::-1]
        return self.gives(times @ self.columns[:, 1:] / self.tokens)

    @property
    def tied(self) -> bool:
        """Whether the gradient of the first weight, which two layers share, is summed over ranks once more."""
        again = self.mean.copy()
        again[1 : 1 + WIDTH * WIDTH] *= self.size
        return self.noun == "gradient" and self.gives(again)

    @property
    def factor(self) -> float:
        """By what the right result is multiplied; 0 where it is not."""
        factor = float(self.got[0] / self.want[0])
        return factor if _close(self.got, factor * self.want) else 0.0

    counted = property(lambda self: self.tokens / self.factor)
    another_count = property(lambda self: self.counted > 0.5 and abs(self.counted - round(self.counted)) < 1e-6)

    # What sentences show.

    layout_text = property(lambda self: _layout_text(self.layout))
    at = property(lambda self: int(np.flatnonzero(~np.isclose(self.got, self.want, rtol=1e-9, atol=1e-12))[0]))
    right = property(lambda self: repr(self.want[self.at].item()))
    found = property(lambda self: repr(float(self.got[self.at])))
    right_loss = property(lambda self: repr(self.mean[0].item()))
    shown_loss = property(lambda self: short(self.loss))


def _judge(results: Sequence[Facts]) -> Finding | None:
    everyone = [replace(facts, everyone=results) for facts in results]
    if finding := judge(GRADIENTS, *everyone) or judge(LOSS, *(replace(facts, noun="loss") for facts in everyone)):
        return finding
    rows: dict[str, list[Row]] = {"the loss": [np.array([facts.loss]) for facts in results]}
    rows |= {f"gradient {i}": [facts.gradients[i] for facts in results] for i in range(len(results[0].gradients))}
    return same_bits(rows)


# -- what is said --

WHYS = rules(
    nan=f"NaN is 0 / 0: the mean over no tokens. {EMPTY}",
    zeros="All zeros: was backward called on each micro-batch's loss, and what it added kept?",
    cut=(
        "The model was given a part of a micro-batch. In a model the result of one place may depend on other places, "
        "as it does with attention: x goes through the model as it is, and only the loss leaves padding out."
    ),
    rounded=(
        "Right to some digits: numbers were in a shorter dtype on their way. Losses and gradients keep the model's."
    ),
    own_mean="That is this rank's own {noun}: nothing was summed over ranks.",
    summed_elsewhere=(
        "Only this rank's share of the gradient is in p.grad, though as many bytes were sent as it takes to sum it: "
        "the sum is elsewhere. comm.allreduce returns it, and what torch.cat makes is a copy. Put the sum into p.grad."
    ),
    own_share="Only this rank's share of the {noun}: sum over ranks, and on all of them, too.",
    mean_of_all_means=(
        "That is the mean of the micro-batches' means, in which the tokens of a short one count more. Divide the sum "
        "over all tokens by their number."
    ),
    mean_of_ranks=(
        "Right on each rank, and then the mean over ranks, in which a rank with few tokens counts as much as one with "
        "many. Divide by the tokens of all ranks before the sum over ranks."
    ),
    sum_of_ranks="Each rank divided by its own tokens, and the means were summed: divide by all tokens.",
    means_weighted=(
        "Ranks count by their tokens, and within a rank it is the mean of the micro-batches' means: divide sums of "
        "losses."
    ),
    means_within_summed="Means over a rank's micro-batches were summed over ranks: divide by all ranks' tokens.",
    sum_of_all_means="The micro-batches' means were summed: divide their sums by all tokens.",
    no_mean="The sum over all tokens, not divided by their number.",
    over_ranks="The sum over all tokens, divided by the number of ranks: divide by the number of tokens.",
    over_ranks_too="Divided by the number of ranks, too: all ranks' tokens are counted already.",
    padding="Padding was counted: a target of IGNORED is no token.",
    over_parts="Divided by the number of micro-batches: divide by the number of tokens.",
    over_own_tokens="Divided by this rank's own tokens: all ranks divide by those of all of them.",
    one_by_one="Each micro-batch is divided by the tokens that all ranks have in that one: count all micro-batches'.",
    again_and_again="Summed over ranks after each micro-batch, and what was summed before with it: sum once.",
    last_alone="Only each rank's last micro-batch is in it: all of them add up.",
    over_parts_too="Divided by the number of micro-batches, too: the tokens of all micro-batches are counted already.",
    times_ranks=(
        "Too large by a factor that is the number of ranks: divide by the sum of all ranks' tokens, not by their mean."
    ),
    tied="The gradient of a weight that two layers share is summed over ranks twice: model.parameters() has it once.",
    another_count="Divided as if {counted:.4g} tokens counted: {tokens} do, whose target is not IGNORED.",
    factor="Right but for a factor of {factor:.4g}: the sum over all tokens is divided once, by their number.",
    otherwise=(
        "Sum the {noun} over all tokens of all micro-batches and ranks, but those with the target IGNORED, and divide "
        "by the number of these tokens, once."
    ),
)
WHYS_NONE = rules(
    without_tokens="A rank without tokens has a gradient, too: that of all ranks. Begin with zeros.",
    otherwise="loss.backward() fills in .grad: was it called for each micro-batch?",
)
GRADIENTS = [
    THROUGH_WORLD,
    *tests(
        no_gradient=("a gradient of every parameter, with {layout_text}", ".grad is None", WHYS_NONE),
        mode_changed=(
            "the model to stay in {mode} mode, in which it is given",
            "{other_mode} mode",
            "The caller chooses the mode: in the other one dropout and batch norm compute something else.",
        ),
        of_others=(
            "rank {rank} to run its own micro-batches",
            "it runs one of rank {foreign}",
            "Each rank runs its share of the batch: sums of losses and of gradients travel, not the micro-batches.",
        ),
        several_at_once=(
            f"activations of one micro-batch at a time in memory, {PADDED} rows",
            "{rows} rows at once",
            "A micro-batch is what fits into memory: run each alone, and its backward before the next one.",
        ),
        another_gradient=(
            "element {at} of the gradient to be {right} on rank {rank}, with {layout_text}",
            "{found}",
            WHYS,
        ),
    ),
]
LOSS_ASKED = "a loss of {right_loss} on rank {rank}, with {layout_text}"
WHYS_NO_LOSS = rules(
    on_others="Another rank has a loss. reduce and gather give their result to one rank alone, and None to others.",
    otherwise="Nothing came back: is the mean loss returned?",
)
LOSS = tests(
    no_loss=(LOSS_ASKED, "None", WHYS_NO_LOSS),
    no_float=(LOSS_ASKED, "{shown_loss}", "A float was asked: .item()."),
    another_loss=(LOSS_ASKED, "{shown_loss}", WHYS),
)
