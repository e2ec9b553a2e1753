"""What e10_clip is asked: each element of the whole model's gradient counted once, and one factor on all ranks."""

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_grids import GridSizes, communicators, grids_of
from mpcourse.course.check.cases.on_models import Finding, Program, on_real, on_virtual
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "clip_grad_norm"
# First the one on which every mistake shows for what it is: with one rank along an axis, different ones look the same.
_GRIDS = [
    *(GridSizes(2, 2, 2), GridSizes(1, 1, 1), GridSizes(1, 1, 2), GridSizes(1, 2, 1), GridSizes(2, 1, 1)),
    *(GridSizes(1, 4, 1), GridSizes(3, 1, 2)),
]
# The norm of the whole model's gradient may be this at most: less than any rank's own, more than it, more than all.
_MOSTS = (0.5, 5.0, 100.0)
# Name, shape, whether it is sharded, on which stages it is (None: on all), whether it has a gradient.
_PARAMETERS: list[tuple[str, tuple[int, ...], bool, int | None, bool]] = [
    ("weight", (3, 2), True, None, True),
    ("norm", (4,), False, None, True),
    ("unused", (2,), False, None, False),
    ("embedding", (2, 3), False, 0, True),
    ("bias", (2,), True, None, True),
]
_ONCE = "Count each element of the whole model once: sharded ones on every tensor rank, all others on one of them."
_ROOTS = "Norms of parts do not add up: their squares do. Take the root last."


class Facts(NamedTuple):
    """Of a call on one rank: what came back, gradients before and after.

    in_place: whether they are the same tensors. kept: whether parameters have the values that they had.
    """

    norm: Any
    before: list[np.ndarray | None]
    after: list[np.ndarray | None]
    in_place: bool
    kept: bool


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    for sizes in grids_of(comm.size):
        for most in _MOSTS:
            on_real(answer, comm, _program(sizes, most, False), functools.partial(_judge, sizes, most))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for sizes in _GRIDS:
        for most, empty in (*((most, False) for most in _MOSTS), (0.5, True)):
            if empty and sizes.pipeline == 1:
                continue
            stumbled = None
            if empty:
                why = "A stage without parameters adds 0, and takes part in every collective call like any other."
                stumbled = (f"the norm of all gradients, with {sizes} and no parameters on the last stage", why)
            judge = functools.partial(_judge, sizes, most)
            on_virtual(answer, comm, sizes.ranks, _program(sizes, most, empty), judge, stumbled)


def _program(sizes: GridSizes, most: float, empty: bool) -> Program:
    """empty: the last stage has no parameters."""

    def program(own: Answer, comm: Any) -> Facts:
        at = sizes.coordinates(comm.rank)
        parameters, sharded = [], []
        for number, (_, shape, split, stage, has) in enumerate(_PARAMETERS):
            if stage not in (None, at.pipeline) or (empty and at.pipeline == sizes.pipeline - 1):
                continue
            draw = torch.Generator().manual_seed(1 + number + 10 * at.pipeline + (100 * at.tensor if split else 0))
            p = torch.nn.Parameter(torch.randn(shape, generator=draw, dtype=torch.float64))
            p.grad = torch.randn(shape, generator=draw, dtype=torch.float64) if has else None
            parameters.append(p)
            sharded.append(split)
        before = [None if p.grad is None else p.grad.numpy().copy() for p in parameters]
        held, values = [p.grad for p in parameters], [p.detach().clone() for p in parameters]
        norm = own.call(NAME, *communicators(comm, sizes), parameters, sharded, most, changes=(parameters,))
        after = [None if p.grad is None else p.grad.detach().numpy().copy() for p in parameters]
        in_place = all(p.grad is g for p, g in zip(parameters, held, strict=True))
        kept = all(torch.equal(p.detach(), value) for p, value in zip(parameters, values, strict=True))
        return Facts(norm, before, after, in_place, kept)

    return program


class Squares(NamedTuple):
    """Of a rank's gradients, the sums of squares of those that are sharded, and of those that are not."""

    sharded: float
    others: float


def _squares(facts: Facts, sizes: GridSizes, rank: int) -> Squares:
    stage = sizes.coordinates(rank).pipeline
    rows = [row for row in _PARAMETERS if row[3] in (None, stage)][: len(facts.before)]
    sums = {True: 0.0, False: 0.0}
    for (_, _, split, _, _), g in zip(rows, facts.before, strict=True):
        sums[split] += 0.0 if g is None else float((g**2).sum())
    return Squares(sums[True], sums[False])


def _judge(sizes: GridSizes, most: float, results: Sequence[Facts]) -> Finding | None:
    squares = [_squares(facts, sizes, rank) for rank, facts in enumerate(results)]
    of_one = [s for rank, s in enumerate(squares) if sizes.coordinates(rank).data == 0]
    first = [s for rank, s in enumerate(squares) if sizes.coordinates(rank)[0::2] == (0, 0)]
    want = math.sqrt(sum(s.sharded for s in of_one) + sum(s.others for s in first))
    factor = min(1.0, most / (want + 1e-6))
    for rank, facts in enumerate(results):
        asked = f"a norm of {want!r} on rank {rank}, with {sizes}"
        if facts.norm is None:
            return Finding(rank, asked, "None", "Nothing came back: is the norm returned?")
        if not isinstance(facts.norm, float):
            return Finding(
                rank, asked, f"{short(facts.norm)}, a {type(facts.norm).__name__}", "A float was asked: .item()."
            )
        if not math.isclose(facts.norm, want, rel_tol=1e-9):
            why = _why_norm(sizes, squares, [facts.norm for facts in results], rank, want, factor)
            return Finding(rank, asked, repr(facts.norm), why)
    for rank in range(len(results)):
        if finding := _judge_gradients(results, rank, factor, want, most):
            return finding
    if len({facts.norm for facts in results}) > 1:
        got = ", ".join(f"{facts.norm!r} on rank {r}" for r, facts in enumerate(results))
        why = "Replicas that are scaled by different factors drift apart: let all ranks add in one order, as allreduce."
        return Finding(None, "the same bits of the norm on all ranks", got, why)
    return None


def _judge_gradients(results: Sequence[Facts], rank: int, factor: float, norm: float, most: float) -> Finding | None:
    facts = results[rank]
    if not facts.kept:
        why = "Clipping scales p.grad. Parameters change in the optimizer's step."
        return Finding(rank, "parameters to keep their values", "other values", why)
    for before, after in zip(facts.before, facts.after, strict=True):
        if before is None or after is None:
            if before is not after:
                why = "A gradient that is None stays None: an optimizer leaves such a parameter out."
                return Finding(rank, "a .grad that was None to stay None", short(after), why)
            continue
        if np.allclose(after, before * factor, rtol=1e-10):
            continue
        asked = f"gradients of norm {norm:.4g} times {factor!r}, for at most {most}, on rank {rank}"
        got = f"times {(after / before).flat[0].item()!r}"
        return Finding(rank, asked, got, _why_gradients(results, before, after, factor, norm, most))
    if not facts.in_place:
        why = "p.grad = p.grad * factor makes a new tensor. Gradients may be views of one flat buffer: scale in place."
        return Finding(rank, "the same .grad tensors, scaled in place", "other tensors", why)
    return None


def _why_gradients(
    results: Sequence[Facts], before: np.ndarray, after: np.ndarray, factor: float, norm: float, most: float
) -> str:
    ratio = float((after / before).flat[0])
    if factor == 1.0:
        return f"The norm, {norm:.4g}, is at most {most} already: clipping makes gradients smaller, never larger."
    if np.array_equal(after, before):
        if all(sum(float((g**2).sum()) for g in f.before if g is not None) <= most**2 for f in results):
            return f"No rank's own norm is above {most}, and the whole model's is: that one decides, on all ranks."
        pairs = [pair for facts in results for pair in zip(facts.before, facts.after, strict=True)]
        if all(a is None or b is None or np.array_equal(a, b) for a, b in pairs):
            return "The gradients are as they were: multiply p.grad itself, as p.grad *= factor or p.grad.mul_(factor)."
        return "Others were scaled, and this one was not: all ranks scale all gradients, by what the whole norm tells."
    if not np.allclose(after / before, ratio):
        return "Each gradient keeps its direction only if all elements of all of them get the same factor: no clamp."
    if math.isclose(ratio, factor, rel_tol=1e-4):
        return "Nearly. As in torch, the factor is most / (norm + 1e-6): that is no division by 0 where norm is 0."
    if math.isclose(ratio, factor**2, rel_tol=1e-5):
        return "That is the factor's square: multiply each gradient once, by most / (norm + 1e-6)."
    if math.isclose(ratio, 1 / norm, rel_tol=1e-5):
        return f"Scaled to a norm of 1: the norm may be {most}."
    return f"All gradients of all ranks get one factor, most / (norm + 1e-6) = {factor:.6g}."


def _why_norm(
    sizes: GridSizes, squares: list[Squares], norms: list[float], rank: int, want: float, factor: float
) -> str:
    """The misconception behind a norm: the first rule that gives it."""
    at = [sizes.coordinates(r) for r in range(sizes.ranks)]

    def over(*axes: str, others: str = "all", sharded: str = "all", power: float = 1, of: int = rank) -> float:
        """The sum over the ranks that differ from rank `of` in these axes, of squares to this power.

        others, sharded: which tensor ranks count what is not sharded, and what is: "all", "first" or "none".
        """
        alike = [
            r
            for r in range(sizes.ranks)
            if all(getattr(at[r], a) == getattr(at[of], a) for a in at[r]._fields if a not in axes)
        ]
        counts = {"all": lambda r: True, "first": lambda r: at[r].tensor == 0, "none": lambda r: False}
        return sum(
            (squares[r].sharded * counts[sharded](r) + squares[r].others * counts[others](r)) ** power for r in alike
        )

    whole, got = want**2, norms[rank]
    if got == 0:
        return "0 on this rank, and not on others: every rank returns the norm. allreduce brings a sum to all of them."
    if all(math.isclose(n * n, over(of=r), rel_tol=1e-9) for r, n in enumerate(norms)):
        return "That is the norm of each rank's own gradients: sum squares over the tensor and the pipeline axis."
    shares = [over(of=r, others="first") for r in range(sizes.ranks)]
    if all(math.isclose(n * n, share, rel_tol=1e-9) for n, share in zip(norms, shares, strict=True)):
        return "That is the norm of this rank's own share: sum squares over the tensor and the pipeline axis."
    rules: list[tuple[float, str]] = [
        (
            over("pipeline", "tensor"),
            f"Gradients that all {sizes.tensor} tensor ranks have are counted {sizes.tensor} times. {_ONCE}",
        ),
        (
            whole * sizes.data,
            "Replicas are counted: ranks of the data axis have the same gradients, so nothing is summed over it.",
        ),
        (whole / sizes.data**2, "Divided by the number of replicas, over which nothing was summed."),
        (
            over("data", "pipeline", "tensor"),
            f"A sum over all ranks counts replicas, and what tensor ranks have in common. {_ONCE} Leave data out.",
        ),
        (max(shares), "That is the largest norm of a rank's share: sum the squares of all shares, then take the root."),
        (
            over("pipeline", "tensor") / sizes.tensor,
            "All is divided by the number of tensor ranks, also what is sharded, of which each has another part.",
        ),
        (
            over("pipeline", "tensor", sharded="first"),
            "The wrong way round: what is sharded counts on every tensor rank, and all others on one of them.",
        ),
        (
            over("pipeline", "tensor", others="none")
            + sum(s.others for s, c in zip(squares, at, strict=True) if not any(c)),
            "What is not sharded is counted on the first pipeline stage alone: each stage has other parameters.",
        ),
        (over("pipeline"), "Summed over the pipeline axis alone: tensor ranks have other parts of what is sharded."),
        (over("tensor"), "Summed over the tensor axis alone: other pipeline stages have other layers."),
        (over("tensor", others="first"), "Summed over the tensor axis alone: other pipeline stages have other layers."),
        (over("pipeline", "tensor", others="none"), "Only sharded parameters are in it: all others count, too, once."),
        (whole**2, "That is the square of the norm: take the root of the sum."),
        *((over("pipeline", "tensor", others=o, power=0.5) ** 2, _ROOTS) for o in ("all", "first")),
        (
            sum(over("tensor", others="first", of=r) ** 0.5 for r in range(sizes.ranks) if at[r][::2] == (0, 0)) ** 2,
            _ROOTS,
        ),
        (factor**2, "That is the factor: return the norm."),
        ((want * factor) ** 2, "That is the norm after clipping: return the one before, as torch does."),
        (whole, "Rounded on the way: squares of float64 are added up as float64."),
    ]
    for value, why in rules:
        if math.isclose(got * got, value, rel_tol=1e-6):
            return why
    begins = "Something is left out. " if got < want else ""
    return f"{begins}The norm is the root of a sum of squares. {_ONCE} Add over the tensor and the pipeline axis."
