"""What e10_tokens is asked: the gradient of the mean over all tokens, whatever micro-batches and ranks have of them."""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Finding, Program, on_real, on_virtual, same_bits
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

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
_EMPTY = "A part without tokens adds 0 to both sums, and takes part in every collective call like any other."


class Facts(NamedTuple):
    """Of a call on one rank. rows: the most that the model was given before a backward of those before."""

    loss: Any
    gradients: list[np.ndarray | None]
    rows: int


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
            stumbled = None if case in ("plain", "full") else (f"the same with {_layout_text(layout)}", _EMPTY)
            on_virtual(answer, comm, size, _program(layout), functools.partial(_judge, layout), stumbled)


def _model() -> nn.Module:
    model = nn.Sequential(nn.Linear(WIDTH, 5), nn.Tanh(), nn.Linear(5, KINDS)).double()
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


def _program(layout: Layout) -> Program:
    def program(own: Answer, comm: Any) -> Facts:
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
        loss = own.call(NAME, comm, model, batches, changes=(model,))
        gradients = [None if p.grad is None else p.grad.numpy().copy() for p in model.parameters()]
        return Facts(loss, gradients, max(rows))

    return program


@functools.cache
def _parts(layout: tuple[tuple[int, ...], ...]) -> list[list[Part]]:
    """What each micro-batch of each rank adds to the two sums."""
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
    each = [f"{' and '.join(map(str, row)) or 'no micro-batches'} on rank {rank}" for rank, row in enumerate(layout)]
    return f"tokens {', '.join(each)}"


def _judge(layout: Layout, results: Sequence[Facts]) -> Finding | None:
    parts = _parts(tuple(map(tuple, layout)))
    everything = [part for row in parts for part in row]
    want = np.sum([part.total for part in everything], 0) / sum(part.tokens for part in everything)
    for rank, facts in enumerate(results):
        if any(g is None for g in facts.gradients):
            why = (
                "A rank without tokens has a gradient, too: that of all ranks. Begin with zeros."
                if not sum(layout[rank])
                else "loss.backward() fills in .grad: was it called for each micro-batch?"
            )
            return Finding(rank, f"a gradient of every parameter, with {_layout_text(layout)}", ".grad is None", why)
        if facts.rows > PADDED:
            asked = f"the model to be given one micro-batch at a time, {PADDED} rows"
            why = "A micro-batch is what fits into memory: run each alone, and its backward before the next one."
            return Finding(rank, asked, f"{facts.rows} rows at once", why)
        got = np.concatenate([g.ravel() for g in facts.gradients if g is not None])
        if not np.allclose(got, want[1:], rtol=1e-9, atol=1e-12):
            i = int(np.flatnonzero(~np.isclose(got, want[1:], rtol=1e-9, atol=1e-12))[0])
            asked = (
                f"element {i} of the gradient to be {want[1 + i].item()!r} on rank {rank}, with {_layout_text(layout)}"
            )
            return Finding(rank, asked, repr(float(got[i])), _why(parts, rank, slice(1, None), got, "gradient"))
    for rank, facts in enumerate(results):
        asked = f"a loss of {want[0].item()!r} on rank {rank}, with {_layout_text(layout)}"
        if not isinstance(facts.loss, float):
            why = (
                "Nothing came back: is the mean loss returned?" if facts.loss is None else "A float was asked: .item()."
            )
            return Finding(rank, asked, short(facts.loss), why)
        if not np.isclose(facts.loss, want[0], rtol=1e-9):
            why = _why(parts, rank, slice(0, 1), np.array([facts.loss]), "loss")
            return Finding(rank, asked, repr(facts.loss), why)
    rows: dict[str, list[np.ndarray | None]] = {"the loss": [np.array([facts.loss]) for facts in results]}
    rows |= {f"gradient {i}": [facts.gradients[i] for facts in results] for i in range(len(results[0].gradients))}
    return same_bits(rows)


def _why(parts: list[list[Part]], rank: int, of: slice, got: np.ndarray, noun: str) -> str:
    """The misconception behind a loss or a gradient: the first rule that gives it."""
    everything = [part for row in parts for part in row]
    own, size = parts[rank], len(parts)
    tokens, zero = sum(part.tokens for part in everything), np.zeros_like(everything[0].total)
    total = sum((part.total for part in everything), zero)
    own_total, own_tokens = sum((part.total for part in own), zero), sum(part.tokens for part in own)
    of_ranks = [
        sum((p.total for p in row), zero) / max(1, sum(p.tokens for p in row)) if row else zero for row in parts
    ]
    of_means = [sum((p.mean for p in row), zero) / len(row) if row else zero for row in parts]
    padded = PADDED * len(everything)
    rules: list[tuple[np.ndarray, str]] = [
        (own_total / max(1, own_tokens), f"That is this rank's own {noun}: nothing was summed over ranks."),
        (own_total / tokens, f"Only this rank's share of the {noun}: sum over ranks, and on all of them, too."),
        (
            sum((p.mean for p in everything), zero) / len(everything),
            "That is the mean of the micro-batches' means, in which the tokens of a short one count more. Divide the "
            "sum over all tokens by their number.",
        ),
        (
            sum(of_ranks, zero) / size,
            "Right on each rank, and then the mean over ranks, in which a rank with few tokens counts as much as one "
            "with many. Divide by the tokens of all ranks before the sum over ranks.",
        ),
        (
            sum(of_ranks, zero),
            "Each rank divided by its own tokens, and the means were summed: divide by all tokens.",
        ),
        (
            sum((mean * sum(p.tokens for p in row) for mean, row in zip(of_means, parts, strict=True)), zero) / tokens,
            "Ranks count by their tokens, and within a rank it is the mean of the micro-batches' means: divide sums of "
            "losses.",
        ),
        (sum(of_means, zero), "Means over a rank's micro-batches were summed over ranks: divide by all ranks' tokens."),
        (
            sum((p.mean for p in everything), zero),
            "The micro-batches' means were summed: divide their sums by all tokens.",
        ),
        (total, "The sum over all tokens, not divided by their number."),
        (total / size, "The sum over all tokens, divided by the number of ranks: divide by the number of tokens."),
        (total / tokens / size, "Divided by the number of ranks, too: all ranks' tokens are counted already."),
        (total / padded, "Padding was counted: a target of IGNORED is no token."),
        (total / len(everything), "Divided by the number of micro-batches: divide by the number of tokens."),
        (total / max(1, own_tokens), "Divided by this rank's own tokens: all ranks divide by those of all of them."),
    ]
    if own:
        together = list(zip(*parts, strict=False))
        rules.append(
            (
                sum((sum((p.total for p in m), zero) / max(1, sum(p.tokens for p in m)) for m in together), zero),
                "Each micro-batch is divided by the tokens that all ranks have in that one: count all micro-batches'.",
            )
        )
        again = zero  # what is summed over ranks after each micro-batch is summed again after the next one
        for micro_batches in together:
            again = size * again + sum((p.total for p in micro_batches), zero)
        rules += [
            (again / tokens, "Summed over ranks after each micro-batch, and what was summed before with it: sum once."),
            (
                sum((row[-1].total for row in parts if row), zero) / tokens,
                "Only each rank's last micro-batch is in it: all of them add up.",
            ),
        ]
    if np.isnan(got).any():
        return f"NaN is 0 / 0: the mean over no tokens. {_EMPTY}"
    if not got.any():
        return "All zeros: was backward called on each micro-batch's loss, and what it added kept?"
    for value, why in rules:
        if np.allclose(got, value[of], rtol=1e-7, atol=1e-12):
            return why
    factor = got[0] / (total / tokens)[of][0]
    if np.allclose(got, factor * (total / tokens)[of], rtol=1e-7):
        return f"Divided as if {tokens / factor:.4g} tokens counted: {tokens} do, whose target is not IGNORED."
    return (
        f"Sum the {noun} over all tokens of all micro-batches and ranks, but those with the target IGNORED, and divide "
        "by the number of these tokens, once."
    )
