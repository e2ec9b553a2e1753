"""What e12_clip is asked: each element of the whole model's gradient counted once, and one factor on all ranks."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Finding, Program, on_real, on_virtual
from mpcourse.course.check.facts.gradients import Row, copies_of
from mpcourse.course.check.facts.grids import GridSizes, communicators, grids_of
from mpcourse.course.check.facts.messages import THROUGH_WORLD, Sent, counting, other_than_world
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import Test, judge, rules
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "clip_grad_norm"
PIPELINE, TENSOR = 0, 2  # axes of arrays with a number for each rank, as ranks are counted

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
CASES = {  # what a case has, and why an answer that was right without it now raises, or lets ranks wait
    "all": None,
    "None": ("a .grad that is None", "A .grad may be None: then it counts as zeros, and stays None."),
    "transposed": (
        "transposed gradients",
        "A gradient need not be contiguous: .reshape(-1) copies where it has to, .view(-1) does not.",
    ),
    "empty": (
        "no parameters on the last stage",
        "A stage without parameters adds 0, and takes part in every collective call like any other.",
    ),
}


def _parameters(sizes: GridSizes, rank: int, case: str) -> tuple[list[torch.nn.Parameter], list[bool]]:
    """Return a rank's parameters, and which of them are sharded. case: one of CASES."""
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
    """Check the answer on real ranks; every rank must call this."""
    for sizes in grids_of(comm.size):
        for most in MAX_NORMS:
            on_real(answer, comm, _program(sizes, most, "None"), _judge)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    for sizes in GRIDS:
        for case, about in CASES.items():
            if case == "empty" and sizes.pipeline == 1:
                continue
            stumbled = (f"the norm of all gradients, with {sizes} and {about[0]}", about[1]) if about else None
            for most in MAX_NORMS if case == "None" else MAX_NORMS[:1]:
                on_virtual(answer, comm, sizes.ranks, _program(sizes, most, case), _judge, stumbled)


# -- observation --


def _program(sizes: GridSizes, most: float, case: str) -> Program:
    def program(own: Answer, comm: Any) -> Facts:
        rank = comm.rank
        (parameters, sharded), (unchanged, _) = (_parameters(sizes, rank, case) for _ in range(2))
        held, before = [p.grad for p in parameters], copies_of(unchanged)
        rows = [(split, (g**2).sum()) for split, g in zip(sharded, before, strict=True) if g is not None]
        others, parts = (float(sum(square for split, square in rows if split == which)) for which in (False, True))
        comm = other_than_world(comm)
        axes, sent = communicators(comm, sizes), counting(comm)
        norm = own.call(NAME, *axes, parameters, sharded, most, changes=(parameters,))
        in_place = all(p.grad is g for p, g in zip(parameters, held, strict=True))
        kept = all(map(torch.equal, parameters, unchanged))
        after = copies_of(parameters)
        return Facts(rank, sizes, most, norm, before, after, (others, parts), in_place, kept, sent())

    return program


@dataclass(frozen=True)
class Facts:
    """What a call on `rank` did: what came back, gradients before and after. Arrays are over pipeline, data, tensor.

    own_squares: the sums of squares of gradients that are not sharded, and of those that are. in_place: whether they
    are the same tensors. kept: whether parameters have the values that they had. sent: known of virtual ranks.
    """

    rank: int | None
    sizes: GridSizes
    most: float
    norm: Any
    before: list[Row]
    after: list[Row]
    own_squares: tuple[float, float]
    in_place: bool
    kept: bool
    sent: Sent | None
    everyone: Sequence["Facts"] = ()

    norms = property(lambda self: [facts.norm for facts in self.everyone])
    pairs = property(
        lambda self: [(b, a) for b, a in zip(self.before, self.after, strict=True) if b is not None and a is not None]
    )
    squares = functools.cached_property(lambda self: self.on_grid([facts.own_squares for facts in self.everyone]))
    others = property(lambda self: self.squares[..., 0])
    sharded = property(lambda self: self.squares[..., 1])
    every = property(lambda self: self.sharded + self.others)
    first = property(lambda self: np.arange(self.sizes.tensor) == 0)  # on the tensor axis
    once = property(lambda self: self.sharded + self.others * self.first)
    stages = property(lambda self: over(self.once, TENSOR))
    whole = property(lambda self: float(over(self.once, PIPELINE, TENSOR).flat[0]))
    want = property(lambda self: math.sqrt(self.whole))
    factor = property(lambda self: min(1.0, self.most / (self.want + 1e-6)))

    def on_grid(self, values: Sequence[Any]) -> np.ndarray:
        array = np.array(values)
        return array.reshape(self.sizes.pipeline, self.sizes.data, self.sizes.tensor, *array.shape[1:])

    def gives(self, *squares: Any) -> bool:
        """Return whether the norms that came are the roots of one of these: of a number, or of one by rank."""
        missing = self.on_grid([not isinstance(norm, float) for norm in self.norms])
        norms = self.on_grid([norm if isinstance(norm, float) else 0.0 for norm in self.norms])
        return any(np.all(missing | np.isclose(norms**2, square, rtol=2e-9, atol=0)) for square in squares)

    # What known mistakes make of the norm.

    elsewhere = property(lambda self: self.norm == 0)
    norm_rounded = property(lambda self: shorter_dtype(self.norm, self.want))
    own_gradients = property(lambda self: self.gives(self.every))
    own_share = property(lambda self: self.gives(self.once))
    others_often = property(lambda self: self.gives(over(self.every, PIPELINE, TENSOR)))
    replicas = property(lambda self: self.gives(self.whole * self.sizes.data))
    over_replicas = property(lambda self: self.gives(self.whole / self.sizes.data**2))
    all_ranks = property(lambda self: self.gives(self.every.sum()))
    own_beside_others = property(
        lambda self: math.isclose(self.norms[0], self.want) and math.isclose(self.norm**2, self.once.flat[self.rank])
    )
    largest_share = property(lambda self: self.gives(self.once.max()))
    over_tensor = property(lambda self: self.gives(over(self.every, PIPELINE, TENSOR) / self.sizes.tensor))
    inverted = property(lambda self: self.gives(over(self.sharded * self.first + self.others, PIPELINE, TENSOR)))
    on_first_stage = property(lambda self: self.gives(over(self.sharded, PIPELINE, TENSOR) + self.others.flat[0]))
    one_tensor_rank = property(lambda self: self.gives(over(self.every * self.first, PIPELINE, TENSOR)))
    largest_sum = property(lambda self: self.gives(self.stages.max(), over(self.once, PIPELINE).max()))
    pipeline_alone = property(lambda self: self.gives(over(self.every, PIPELINE), over(self.once, PIPELINE)))
    tensor_alone = property(lambda self: self.gives(over(self.every, TENSOR), self.stages))
    sharded_alone = property(lambda self: self.gives(over(self.sharded, PIPELINE, TENSOR)))
    no_root = property(lambda self: self.gives(self.whole**2))
    no_norm = property(lambda self: self.gives(self.factor**2))
    norm_afterwards = property(lambda self: self.gives((self.want * self.factor) ** 2, self.most**2))

    @property
    def added_to_replicas(self) -> bool:
        """Whether gradients were multiplied by the number of replicas before their norm was taken."""
        norm = self.want * self.sizes.data
        factor = self.sizes.data * min(1.0, self.most / (norm + 1e-6))
        return self.gives(norm**2) and all(np.allclose(a, b * factor, rtol=1e-10) for b, a in self.pairs)

    @property
    def sum_of_norms(self) -> bool:
        """Whether norms of ranks, with or without others on all tensor ranks, or of stages, were added."""
        of_ranks = [over(np.sqrt(squares), PIPELINE, TENSOR) ** 2 for squares in (self.every, self.once)]
        return self.gives(*of_ranks, over(np.sqrt(self.stages), PIPELINE) ** 2)

    # Gradients.

    @functools.cached_property
    def wrong(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The first gradient that was not scaled by the factor: before and after."""
        return next(((b, a) for b, a in self.pairs if not np.allclose(a, b * self.factor, rtol=1e-10)), None)

    @property
    def not_none(self) -> Row:
        """What is there where there was None, or the other way round."""
        pairs = zip(self.before, self.after, strict=True)
        return next((a for b, a in pairs if (b is None) != (a is None)), None)

    ratio = property(lambda self: float((self.wrong[1] / self.wrong[0]).flat[0]))
    one_ratio = property(lambda self: np.allclose(self.wrong[1], self.wrong[0] * self.ratio, rtol=1e-10))
    largest = property(lambda self: np.abs(self.wrong[1]).max())
    clamped = property(lambda self: np.allclose(self.wrong[1], np.clip(self.wrong[0], -self.largest, self.largest)))
    squared = property(lambda self: np.allclose(self.wrong[1], self.wrong[0] ** 2 * self.factor, rtol=1e-10))
    small_already = property(lambda self: self.factor == 1.0)
    unscaled = property(lambda self: np.array_equal(*self.wrong))
    all_unscaled = property(lambda self: all(np.array_equal(*pair) for facts in self.everyone for pair in facts.pairs))
    own_norm_decides = property(lambda self: self.unscaled and self.every.max() <= self.most**2)
    rounded = property(
        lambda self: (
            shorter_dtype(self.wrong[1], self.wrong[0] * self.factor) or self.scaled_by(float(np.float32(self.factor)))
        )
    )
    scaled_twice = property(
        lambda self: self.scaled_by(self.factor**2, (self.most / self.want) ** 2, self.most**2 / (self.whole + 1e-6))
    )
    by_own_norm = property(lambda self: self.scaled_by(self.most / (math.sqrt(sum(self.own_squares)) + 1e-6)))
    to_norm_of_1 = property(lambda self: self.scaled_by(1 / self.want, 1 / (self.want + 1e-6)))

    def scaled_by(self, *ratios: float) -> bool:
        return self.one_ratio and any(math.isclose(self.ratio, ratio, rel_tol=1e-10) for ratio in ratios)

    @property
    def epsilon(self) -> bool:
        others = (self.most / (self.want + e) for e in (0.0, *(10.0**-k for k in range(1, 17))))
        return self.scaled_by(self.most / self.want + 1e-6, *others)

    # What sentences show.

    shown = property(lambda self: repr(self.norm) if isinstance(self.norm, float) else short(self.norm))
    kind = property(lambda self: type(self.norm).__name__)
    left = property(lambda self: short(self.not_none))
    begins = property(lambda self: "Something is left out. " if self.norm < self.want else "")
    by_rank = property(lambda self: ", ".join(f"{norm!r} on rank {r}" for r, norm in enumerate(self.norms)))


def over(squares: np.ndarray, *axes: int) -> np.ndarray:
    """Return for each rank the sum over the ranks that differ from it in these axes alone."""
    return squares.sum(axis=axes, keepdims=True)


def _judge(results: Sequence[Facts]) -> Finding | None:
    everyone = [replace(facts, everyone=results) for facts in results]
    return judge(NORM, *everyone) or judge(GRADIENTS, *everyone) or judge(BITS, replace(everyone[0], rank=None))


# -- what is said --

ONCE = "Count each element of the whole model once: sharded ones on every tensor rank, all others on one of them."
WHYS_NORM = rules(
    elsewhere="0 on this rank, and not on others: every rank returns the norm. allreduce brings a sum to all of them.",
    norm_rounded="Rounded on the way: squares of float64 are added up as float64.",
    own_gradients="That is the norm of each rank's own gradients: sum squares over the tensor and the pipeline axis.",
    own_share="That is the norm of this rank's own share: sum squares over the tensor and the pipeline axis.",
    others_often=f"Gradients that all {{sizes.tensor}} tensor ranks have are counted {{sizes.tensor}} times. {ONCE}",
    replicas="Replicas are counted: ranks of the data axis have the same gradients, so nothing is summed over it.",
    added_to_replicas=(
        "{sizes.data} times the norm: gradients were added up over the data axis, over which they are averaged already."
    ),
    own_beside_others=(
        "Rank 0 has the norm, and this rank that of its own share. gather and reduce bring a result to one rank alone, "
        "allgather and allreduce to all."
    ),
    over_replicas="Divided by the number of replicas, over which nothing was summed.",
    all_ranks=f"A sum over all ranks counts replicas, and what tensor ranks have in common. {ONCE} Leave data out.",
    largest_share="That is the largest norm of a rank's share: sum the squares of all shares, then take the root.",
    over_tensor="All is divided by the number of tensor ranks, also what is sharded, and there each has another part.",
    inverted="The wrong way round: what is sharded counts on every tensor rank, and all others on one of them.",
    on_first_stage="What is not sharded is counted on the first pipeline stage alone: each stage has other parameters.",
    one_tensor_rank="All is counted on one tensor rank alone: tensor ranks have other parts of what is sharded.",
    largest_sum="That is a sum over one axis, and the largest of these over the other one: sum squares over both axes.",
    pipeline_alone="Summed over the pipeline axis alone: tensor ranks have other parts of what is sharded.",
    tensor_alone="Summed over the tensor axis alone: other pipeline stages have other layers.",
    sharded_alone="Only sharded parameters are in it: all others count, too, once.",
    no_root="That is the square of the norm: take the root of the sum.",
    sum_of_norms="Norms of parts do not add up: their squares do. Take the root last.",
    no_norm="That is the factor: return the norm.",
    norm_afterwards="That is the norm after clipping: return the one before, as torch does.",
    otherwise=f"{{begins}}The norm is the root of a sum of squares. {ONCE} Add over the tensor and the pipeline axis.",
)
NORM_ASKED = "a norm of {want} on rank {rank}, with {sizes}"
NORM = [
    THROUGH_WORLD,
    Test("None", lambda f: f.norm is None, NORM_ASKED, "None", "Nothing came back: is the norm returned?"),
    Test(
        "type", lambda f: not isinstance(f.norm, float), NORM_ASKED, "{shown}, a {kind}", "A float was asked: .item()."
    ),
    Test("another norm", lambda f: not math.isclose(f.norm, f.want, rel_tol=1e-9), NORM_ASKED, "{shown}", WHYS_NORM),
]
WHYS_GRADIENTS = rules(
    small_already="The norm, {want:.4g}, is at most {most} already: clipping makes gradients smaller, never larger.",
    own_norm_decides="No rank's own norm is above {most}, and the whole model's is: that one decides, on all ranks.",
    all_unscaled="The gradients are as they were: multiply p.grad itself, as p.grad *= factor or p.grad.mul_(factor).",
    unscaled="Others were scaled, and this one was not: all ranks scale all gradients, by what the whole norm tells.",
    epsilon="Nearly. As in torch, the factor is most / (norm + 1e-6): that is no division by 0 where norm is 0.",
    rounded="Rounded on the way: gradients of float64 are multiplied by a float64, most / (norm + 1e-6).",
    clamped="Each gradient keeps its direction only if all elements of all of them get the same factor: no clamp.",
    squared=(
        "That is the square of each element, times the factor: what was squared in place is the gradient itself, whose "
        "memory p.grad.detach() and p.grad.data share."
    ),
    by_own_norm="Scaled by the norm of this rank's own gradients: all ranks scale by the whole model's, {want:.4g}.",
    scaled_twice="That is the factor's square: multiply each gradient once, by most / (norm + 1e-6).",
    to_norm_of_1="Scaled to a norm of 1: the norm may be {most}.",
    otherwise="All gradients of all ranks get one factor, most / (norm + 1e-6) = {factor:.6g}.",
)
GRADIENTS = [
    Test(
        "parameters changed",
        lambda f: not f.kept,
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
        lambda f: not f.in_place,
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
