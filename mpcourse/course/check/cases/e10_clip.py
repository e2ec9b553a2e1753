"""What e10_clip is asked: each element of the whole model's gradient counted once, and one factor on all ranks."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Finding, Program, on_real, on_virtual
from mpcourse.course.check.facts.grids import GridSizes, communicators, grids_of
from mpcourse.course.check.facts.messages import THROUGH_WORLD, Sent, counting, is_virtual, other_than_world
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import Rule, Test, always, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "clip_grad_norm"

# -- inputs --

# First the one on which every mistake shows for what it is: with one rank along an axis, different ones look the same.
GRIDS = [
    *(GridSizes(2, 2, 2), GridSizes(1, 1, 1), GridSizes(1, 1, 2), GridSizes(1, 2, 1), GridSizes(2, 1, 1)),
    *(GridSizes(1, 4, 1), GridSizes(3, 1, 2)),
]
# The norm of the whole model's gradient may be this at most: less than any rank's own, more than it, more than all.
MAX_NORMS = (0.5, 5.0, 100.0)
# Name, shape, whether it is sharded, on which stages it is (None: on all), whether it has a gradient.
PARAMETERS: list[tuple[str, tuple[int, ...], bool, int | None, bool]] = [
    ("weight", (3, 2), True, None, True),
    ("norm", (4,), False, None, True),
    ("unused", (2,), False, None, False),
    ("embedding", (2, 3), False, 0, True),
    ("bias", (2,), True, None, True),
]
WHYS = {  # what a case has, and why an answer that was right without it now raises, or lets ranks wait
    "all": "",
    "None": "A .grad may be None: then it counts as zeros, and stays None.",
    "transposed": "A gradient need not be contiguous: .reshape(-1) copies where it has to, .view(-1) does not.",
    "empty": "A stage without parameters adds 0, and takes part in every collective call like any other.",
}
HAS = {"None": "a .grad that is None", "transposed": "transposed gradients", "empty": "no parameters on the last stage"}


def _parameters(sizes: GridSizes, rank: int, case: str) -> tuple[list[torch.nn.Parameter], list[bool]]:
    """Return a rank's parameters, and which of them are sharded. case: one of WHYS."""
    at = sizes.coordinates(rank)
    parameters, sharded = [], []
    for number, (_, shape, split, stage, has) in enumerate(PARAMETERS):
        if stage not in (None, at.pipeline) or (case == "empty" and at.pipeline == sizes.pipeline - 1):
            continue
        draw = torch.Generator().manual_seed(1 + number + 10 * at.pipeline + (100 * at.tensor if split else 0))
        p = torch.nn.Parameter(torch.randn(shape, generator=draw, dtype=torch.float64))
        gradient = torch.randn(shape, generator=draw, dtype=torch.float64)
        if split and not at.tensor:  # so that the tensor rank that counts all others has not the largest sum
            gradient *= 0.5
        if case == "transposed" and len(shape) == 2:
            gradient = gradient.t().contiguous().t()
        p.grad = gradient if has or case == "all" else None
        parameters.append(p)
        sharded.append(split)
    return parameters, sharded


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    for sizes in grids_of(comm.size):
        for most in MAX_NORMS:
            on_real(answer, comm, _program(sizes, most, "None"), functools.partial(_judge, sizes, most))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for sizes in GRIDS:
        for case, why in WHYS.items():
            if case == "empty" and sizes.pipeline == 1:
                continue
            stumbled = (f"the norm of all gradients, with {sizes} and {HAS[case]}", why) if why else None
            for most in MAX_NORMS if case == "None" else MAX_NORMS[:1]:
                judge_it = functools.partial(_judge, sizes, most)
                on_virtual(answer, comm, sizes.ranks, _program(sizes, most, case), judge_it, stumbled)


# -- observation --


class Seen(NamedTuple):
    """What a call on one rank did: what came back, gradients before and after.

    sharded: which of them are. in_place: whether they are the same tensors. kept: whether parameters have the values
    that they had. sent: known of virtual ranks.
    """

    norm: Any
    before: list[np.ndarray | None]
    after: list[np.ndarray | None]
    sharded: list[bool]
    in_place: bool
    kept: bool
    sent: Sent | None

    @property
    def pairs(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Gradients that there were, before and after."""
        return [(b, a) for b, a in zip(self.before, self.after, strict=True) if b is not None and a is not None]

    def squares(self, sharded: bool) -> float:
        """The sum of squares of the gradients that are sharded, or of the others."""
        rows = zip(self.before, self.sharded, strict=True)
        return sum(float((g**2).sum()) for g, split in rows if g is not None and split == sharded)


def _program(sizes: GridSizes, most: float, case: str) -> Program:
    def program(own: Answer, comm: Any) -> Seen:
        parameters, sharded = _parameters(sizes, comm.rank, case)
        before = [None if p.grad is None else p.grad.numpy().copy() for p in parameters]
        held, values = [p.grad for p in parameters], [p.detach().clone() for p in parameters]
        comm = other_than_world(comm)
        axes = communicators(comm, sizes)
        sent = counting(comm) if is_virtual(comm) else lambda: None
        norm = own.call(NAME, *axes, parameters, sharded, most, changes=(parameters,))
        after = [None if p.grad is None else p.grad.detach().numpy().copy() for p in parameters]
        in_place = all(p.grad is g for p, g in zip(parameters, held, strict=True))
        kept = all(torch.equal(p.detach(), value) for p, value in zip(parameters, values, strict=True))
        return Seen(norm, before, after, sharded, in_place, kept, sent())

    return program


Counting = Literal["all", "first", "none"]  # which tensor ranks count something


@dataclass(frozen=True)
class Facts:
    """What calls did, seen from `rank`; None: from all."""

    rank: int | None
    sizes: GridSizes
    most: float
    everyone: Sequence[Seen]

    seen = property(lambda self: self.everyone[self.rank])
    norm = property(lambda self: self.seen.norm)
    at = property(lambda self: [self.sizes.coordinates(rank) for rank in range(self.sizes.ranks)])
    norms = property(lambda self: [seen.norm for seen in self.everyone])

    def over(
        self, *axes: str, others: Counting = "all", sharded: Counting = "all", of: int = 0, power: float = 1
    ) -> float:
        """The sum over the ranks that differ from rank `of` in these axes, of squares to this power."""
        at = self.at
        fixed = [axis for axis in at[of]._fields if axis not in axes]
        alike = [r for r in range(len(at)) if all(getattr(at[r], a) == getattr(at[of], a) for a in fixed)]

        def squares(r: int) -> float:
            counts = {"all": True, "first": at[r].tensor == 0, "none": False}
            seen = self.everyone[r]
            return counts[sharded] * seen.squares(True) + counts[others] * seen.squares(False)

        return sum(squares(r) ** power for r in alike)

    def gives(self, *squares: float | Callable[[int], float]) -> bool:
        """Whether all ranks' norms are roots of this: of a number, or of one by rank."""
        return any(
            all(
                math.isclose(norm * norm, value(rank) if callable(value) else value, rel_tol=2e-9)
                for rank, norm in enumerate(self.norms)
            )
            for value in squares
        )

    whole = functools.cached_property(lambda self: self.over("pipeline", "tensor", others="first"))
    want = property(lambda self: math.sqrt(self.whole))
    factor = property(lambda self: min(1.0, self.most / (self.want + 1e-6)))
    shares = property(lambda self: [self.over(others="first", of=rank) for rank in range(self.sizes.ranks)])
    stages = property(lambda self: [self.over("tensor", others="first", of=r) for r in range(self.sizes.ranks)])
    columns = property(lambda self: [self.over("pipeline", others="first", of=r) for r in range(self.sizes.ranks)])

    @property
    def on_the_first_stage(self) -> float:
        """What is sharded everywhere, all others on the first rank of the grid alone."""
        return self.over("pipeline", "tensor", others="none") + self.everyone[0].squares(False)

    @property
    def root_of_each(self) -> list[float]:
        """Squares of sums of norms: of ranks, with or without others on all tensor ranks, and of stages."""
        stages = [self.stages[r] ** 0.5 for r in range(self.sizes.ranks) if self.at[r][::2] == (0, 0)]
        both = [self.over("pipeline", "tensor", others=others, power=0.5) for others in ("all", "first")]
        return [norm**2 for norm in (*both, sum(stages))]

    # Gradients.

    @functools.cached_property
    def wrong(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The first gradient that was not scaled by the factor: before and after."""
        return next(((b, a) for b, a in self.seen.pairs if not np.allclose(a, b * self.factor, rtol=1e-10)), None)

    @property
    def not_none(self) -> np.ndarray | None:
        """What is there where there was None, or the other way round."""
        pairs = zip(self.seen.before, self.seen.after, strict=True)
        return next((a for b, a in pairs if (b is None) != (a is None)), None)

    ratio = property(lambda self: float((self.wrong[1] / self.wrong[0]).flat[0]))
    is_scaled = property(lambda self: np.allclose(self.wrong[1], self.wrong[0] * self.ratio, rtol=1e-10))
    is_as_it_was = property(lambda self: np.array_equal(*self.wrong))
    all_are = property(lambda self: all(np.array_equal(b, a) for seen in self.everyone for b, a in seen.pairs))

    @property
    def rounded(self) -> bool:
        """Whether gradients, or the factor, were in a shorter dtype."""
        before, after = self.wrong or (0.0, 0.0)
        return bool(shorter_dtype(after, before * self.factor) or self.scaled_by(float(np.float32(self.factor))))

    def scaled_by(self, *ratios: float) -> bool:
        return self.is_scaled and any(math.isclose(self.ratio, ratio, rel_tol=1e-10) for ratio in ratios)

    @property
    def no_rank_above(self) -> bool:
        return all(seen.squares(True) + seen.squares(False) <= self.most**2 for seen in self.everyone)

    @property
    def with_another_epsilon(self) -> list[float]:
        return [
            self.most / self.want + 1e-6,
            *(self.most / (self.want + epsilon) for epsilon in (0.0, *(10.0**-k for k in range(1, 17)))),
        ]

    # What sentences show.

    sent = property(lambda self: self.seen.sent)
    shown = property(lambda self: repr(self.norm) if isinstance(self.norm, float) else short(self.norm))
    kind = property(lambda self: type(self.norm).__name__)
    left = property(lambda self: short(self.not_none))
    begins = property(lambda self: "Something is left out. " if self.norm < self.want else "")
    by_rank = property(lambda self: ", ".join(f"{norm!r} on rank {r}" for r, norm in enumerate(self.norms)))


def _judge(sizes: GridSizes, most: float, results: Sequence[Seen]) -> Finding | None:
    everyone = [Facts(rank, sizes, most, results) for rank in range(len(results))]
    return judge(NORM, *everyone) or judge(GRADIENTS, *everyone) or judge(BITS, Facts(None, sizes, most, results))


# -- what is said --

ONCE = "Count each element of the whole model once: sharded ones on every tensor rank, all others on one of them."
ROOTS = "Norms of parts do not add up: their squares do. Take the root last."
TENSOR_ALONE = "Summed over the tensor axis alone: other pipeline stages have other layers."
WHYS_NORM = [
    Rule(
        "only on some ranks",
        lambda f: f.norm == 0,
        "0 on this rank, and not on others: every rank returns the norm. allreduce brings a sum to all of them.",
    ),
    Rule(
        "rounded",
        lambda f: bool(shorter_dtype(f.norm, f.want)),
        "Rounded on the way: squares of float64 are added up as float64.",
    ),
    Rule(
        "own gradients",
        lambda f: f.gives(lambda r: f.over(of=r)),
        "That is the norm of each rank's own gradients: sum squares over the tensor and the pipeline axis.",
    ),
    Rule(
        "own share",
        lambda f: f.gives(lambda r: f.shares[r]),
        "That is the norm of this rank's own share: sum squares over the tensor and the pipeline axis.",
    ),
    Rule(
        "others counted often",
        lambda f: f.gives(f.over("pipeline", "tensor")),
        f"Gradients that all {{sizes.tensor}} tensor ranks have are counted {{sizes.tensor}} times. {ONCE}",
    ),
    Rule(
        "replicas counted",
        lambda f: f.gives(f.whole * f.sizes.data),
        "Replicas are counted: ranks of the data axis have the same gradients, so nothing is summed over it.",
    ),
    Rule(
        "divided by replicas",
        lambda f: f.gives(f.whole / f.sizes.data**2),
        "Divided by the number of replicas, over which nothing was summed.",
    ),
    Rule(
        "all ranks",
        lambda f: f.gives(f.over("data", "pipeline", "tensor")),
        f"A sum over all ranks counts replicas, and what tensor ranks have in common. {ONCE} Leave data out.",
    ),
    Rule(
        "largest share",
        lambda f: f.gives(max(f.shares)),
        "That is the largest norm of a rank's share: sum the squares of all shares, then take the root.",
    ),
    Rule(
        "divided by tensor ranks",
        lambda f: f.gives(f.over("pipeline", "tensor") / f.sizes.tensor),
        "All is divided by the number of tensor ranks, also what is sharded, of which each has another part.",
    ),
    Rule(
        "inverted",
        lambda f: f.gives(f.over("pipeline", "tensor", sharded="first")),
        "The wrong way round: what is sharded counts on every tensor rank, and all others on one of them.",
    ),
    Rule(
        "on the first stage",
        lambda f: f.gives(f.on_the_first_stage),
        "What is not sharded is counted on the first pipeline stage alone: each stage has other parameters.",
    ),
    Rule(
        "one tensor rank",
        lambda f: f.gives(f.over("pipeline", "tensor", sharded="first", others="first")),
        "All is counted on one tensor rank alone: tensor ranks have other parts of what is sharded.",
    ),
    Rule(
        "largest along an axis",
        lambda f: f.gives(max(f.stages), max(f.columns)),
        "That is a sum over one axis, and the largest of these over the other one: sum squares over both axes.",
    ),
    Rule(
        "pipeline alone",
        lambda f: f.gives(lambda r: f.over("pipeline", of=r), lambda r: f.columns[r]),
        "Summed over the pipeline axis alone: tensor ranks have other parts of what is sharded.",
    ),
    Rule("tensor alone", lambda f: f.gives(lambda r: f.over("tensor", of=r), lambda r: f.stages[r]), TENSOR_ALONE),
    Rule(
        "sharded alone",
        lambda f: f.gives(f.over("pipeline", "tensor", others="none")),
        "Only sharded parameters are in it: all others count, too, once.",
    ),
    Rule("square", lambda f: f.gives(f.whole**2), "That is the square of the norm: take the root of the sum."),
    Rule("sum of norms", lambda f: f.gives(*f.root_of_each), ROOTS),
    Rule("factor", lambda f: f.gives(f.factor**2), "That is the factor: return the norm."),
    Rule(
        "norm afterwards",
        lambda f: f.gives((f.want * f.factor) ** 2, f.most**2),
        "That is the norm after clipping: return the one before, as torch does.",
    ),
    Rule(
        "another norm",
        always,
        f"{{begins}}The norm is the root of a sum of squares. {ONCE} Add over the tensor and the pipeline axis.",
    ),
]
NORM_ASKED = "a norm of {want} on rank {rank}, with {sizes}"
NORM = [
    THROUGH_WORLD,
    Test("None", lambda f: f.norm is None, NORM_ASKED, "None", "Nothing came back: is the norm returned?"),
    Test(
        "no float",
        lambda f: not isinstance(f.norm, float),
        NORM_ASKED,
        "{shown}, a {kind}",
        "A float was asked: .item().",
    ),
    Test("another norm", lambda f: not math.isclose(f.norm, f.want, rel_tol=1e-9), NORM_ASKED, "{shown}", WHYS_NORM),
]
WHYS_GRADIENTS = [
    Rule(
        "scaled though small",
        lambda f: f.factor == 1.0,
        "The norm, {want:.4g}, is at most {most} already: clipping makes gradients smaller, never larger.",
    ),
    Rule(
        "own norm decides",
        lambda f: f.is_as_it_was and f.no_rank_above,
        "No rank's own norm is above {most}, and the whole model's is: that one decides, on all ranks.",
    ),
    Rule(
        "nothing scaled",
        lambda f: f.is_as_it_was and f.all_are,
        "The gradients are as they were: multiply p.grad itself, as p.grad *= factor or p.grad.mul_(factor).",
    ),
    Rule(
        "some scaled",
        lambda f: f.is_as_it_was,
        "Others were scaled, and this one was not: all ranks scale all gradients, by what the whole norm tells.",
    ),
    Rule(
        "another epsilon",
        lambda f: f.scaled_by(*f.with_another_epsilon),
        "Nearly. As in torch, the factor is most / (norm + 1e-6): that is no division by 0 where norm is 0.",
    ),
    Rule(
        "rounded",
        lambda f: f.rounded,
        "Rounded on the way: gradients of float64 are multiplied by a float64, most / (norm + 1e-6).",
    ),
    Rule(
        "clamped",
        lambda f: not f.is_scaled,
        "Each gradient keeps its direction only if all elements of all of them get the same factor: no clamp.",
    ),
    Rule(
        "scaled twice",
        lambda f: f.scaled_by(f.factor**2, (f.most / f.want) ** 2, f.most**2 / (f.whole + 1e-6)),
        "That is the factor's square: multiply each gradient once, by most / (norm + 1e-6).",
    ),
    Rule(
        "to a norm of 1",
        lambda f: f.scaled_by(1 / f.want, 1 / (f.want + 1e-6)),
        "Scaled to a norm of 1: the norm may be {most}.",
    ),
    Rule("another factor", always, "All gradients of all ranks get one factor, most / (norm + 1e-6) = {factor:.6g}."),
]
GRADIENTS = [
    Test(
        "parameters changed",
        lambda f: not f.seen.kept,
        "parameters to keep their values",
        "other values",
        "Clipping scales p.grad. Parameters change in the optimizer's step.",
    ),
    Test(
        "None filled in",
        lambda f: f.not_none is not None,
        "a .grad that was None to stay None",
        "{left}",
        "A gradient that is None stays None: an optimizer leaves such a parameter out.",
    ),
    Test(
        "another factor",
        lambda f: f.wrong is not None,
        "gradients of norm {want:.4g} times {factor}, for at most {most}, on rank {rank}",
        "times {ratio}",
        WHYS_GRADIENTS,
    ),
    Test(
        "not in place",
        lambda f: not f.seen.in_place,
        "the same .grad tensors, scaled in place",
        "other tensors",
        "p.grad = p.grad * factor makes a new tensor. Gradients may be views of one flat buffer: scale in place.",
    ),
]
BITS = [
    Test(
        "other bits",
        lambda f: len(set(f.norms)) > 1,
        "the same bits of the norm on all ranks",
        "{by_rank}",
        "Replicas that are scaled by different factors drift apart: let all ranks add in one order, as allreduce.",
    )
]
