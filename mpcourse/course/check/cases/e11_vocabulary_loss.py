"""What e11_vocabulary_loss is asked: loss and gradient as of one process, by a few numbers a position."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from mpcourse.common.words import named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Finding, each_on_real, each_on_virtual, one_line
from mpcourse.course.check.facts import chunks
from mpcourse.course.check.facts.messages import COMM, PICKLED, SLACK, THROUGH_WORLD, Sent
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import Test, Whys, judge, rules, tests
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.virtual_run import OnVirtualRank
from mpcourse.course.check.wrong import Wrong, first_difference, short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "loss_and_gradient"
NUMBERS, CALLS = 4, 8  # numbers of float64 a position that go to each other rank, and collective calls, at most
EPSILONS = [10.0**-k for k in range(1, 10)]  # what people add before they take a logarithm

# -- inputs --


@dataclass(frozen=True)
class Input:
    """Logits and targets. owns: how many tokens each rank has. offset: what is added to logits, or subtracted.

    columns: whether logits are transposed in memory. turned: whether comm has the ranks in the opposite order.
    measured: whether calls and bytes are counted. why: for an answer that was right until then.
    """

    what: str
    owns: tuple[int, ...] = (4, 4, 4, 4)
    positions: int = 9
    offset: float = 0.0
    dtype: torch.dtype = torch.float64
    columns: bool = False
    turned: bool = False
    measured: bool = False
    why: str = ""

    n = property(lambda self: self.positions * self.owns[0])

    def begins(self, size: int) -> list[int]:
        return [sum(self.owns[:rank]) for rank in range(size)]

    def logits(self, rank: int) -> torch.Tensor:
        draw = torch.Generator().manual_seed(1 + rank)
        drawn = 2 * torch.randn((self.positions, self.owns[rank]), generator=draw, dtype=torch.float64)
        even = 1 - 2 * (rank % 2)
        for i, sign in enumerate((1, -1, even, -even)):  # large everywhere, nowhere, on half of the ranks
            drawn[i::4] += sign * self.offset
        drawn = drawn.to(self.dtype)
        return drawn.t().contiguous().t() if self.columns else drawn

    def targets(self, size: int) -> torch.Tensor:
        """Return the first token of each rank's part, the last ones, and others."""
        begins, total = self.begins(size), sum(self.owns[:size])
        ends = [begin - 1 for begin in [*begins[1:], total]]
        others = torch.randint(total, (self.positions,), generator=torch.Generator().manual_seed(9)).tolist()
        return torch.tensor([*begins, *ends, *others][: self.positions])


INPUTS = (
    Input("4 tokens on each rank"),
    Input(
        "different numbers of tokens on the ranks",
        owns=(5, 3, 2, 4),
        why="Ranks may have different numbers of tokens. A rank's part begins after all tokens of the ranks before it.",
    ),
    Input("logits of about 1000 and -1000", owns=(5, 3, 2, 4), offset=990.0),
    Input("one position", positions=1, why="There may be one position only."),
    Input("one token on each rank", owns=(1, 1, 1, 1), why="A rank may have one token only."),
    Input("logits of float32", dtype=torch.float32, why="The logits may be float32. Compute in float64."),
    Input(
        "logits that are not contiguous",
        columns=True,
        why="MPI takes memory as it lies, and the logits are not contiguous: what is computed from them need not be, "
        "either.",
    ),
    Input("ranks of a communicator that has them in another order", owns=(5, 3, 2, 4), turned=True, why=COMM),
)
LONG = Input("64 positions, and 40 tokens on each rank", (40, 40, 40, 40), 64, measured=True)
ASKED = "the loss and the gradient of one process, on {ranks}, with {case.what}"


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    each_on_real(answer, comm, INPUTS[:3], _call, _judge)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    try:
        each_on_virtual(answer, comm, INPUTS, _call, _judge, ASKED)
        each_on_virtual(answer, comm, [LONG], _call, _judge, ASKED, SIZES[:-1])  # alone a rank sends nothing
    except OnVirtualRank as error:
        got = error.error.got if isinstance(error.error, Wrong) else one_line(error.error)
        if not re.search(r"(index|Target) -?\d+ is out of bounds", got):
            raise
        wrong = Wrong("numbers of columns that this rank's logits have", got, OUTSIDE)
        raise OnVirtualRank(wrong, error.answer, error.rank, error.size, error.printed) from error


# -- observation --


class Seen(NamedTuple):
    """What a call returned on a rank. pair: whether these are two things; then loss and gradient, the latter an array.

    shown, shown_gradient: as a text. gradient: None where it is no tensor. sent: known of virtual ranks.
    """

    pair: bool
    loss: Any
    shown: str
    gradient: Any
    shown_gradient: str
    sent: Sent | None


def _call(case: Input, own: Answer, comm: Any) -> Seen:
    with chunks.given(comm, case) as (ranks, sent):
        result = own.call(NAME, ranks, case.logits(ranks.rank), case.targets(ranks.size))
        pair = isinstance(result, tuple | list) and len(result) == 2
        loss, gradient = result if pair else (result, None)
        array = gradient.detach().numpy().copy() if isinstance(gradient, torch.Tensor) else None
        number = float(loss) if isinstance(loss, float) else None
        return Seen(pair, number, short(loss), array, short(gradient), sent())


@dataclass(frozen=True)
class Facts:
    """What a call returned on `rank`, beside what right and wrong programs make of the logits."""

    rank: int
    case: Input
    everyone: Sequence[Seen]

    size = property(lambda self: len(self.everyone))
    seen = property(lambda self: self.everyone[self.rank])
    sent = property(lambda self: self.seen.sent)
    loss = property(lambda self: self.seen.loss)
    gradient = property(lambda self: self.seen.gradient)
    n = property(lambda self: self.case.positions)
    ranks = property(lambda self: range(self.size))
    targets = cached_property(lambda self: self.case.targets(self.size).numpy())
    parts = cached_property(lambda self: [self.case.logits(rank).double().numpy() for rank in self.ranks])
    whole = cached_property(lambda self: np.concatenate(self.parts, axis=1))
    owns = property(lambda self: self.case.owns[: self.size])
    begins = property(lambda self: self.case.begins(self.size))
    largest = cached_property(lambda self: self.whole.max(1))  # here and below, a number for each position
    own_largest = cached_property(lambda self: [part.max(1) for part in self.parts])
    of_target = property(lambda self: self.whole[np.arange(self.n), self.targets])
    logarithm = cached_property(lambda self: np.log(np.exp(self.whole - self.largest[:, None]).sum(1)) + self.largest)
    losses = property(lambda self: self.logarithm - self.of_target)
    want = property(lambda self: float(self.losses.mean()))
    softmax = cached_property(lambda self: [np.exp(part - self.logarithm[:, None]) for part in self.parts])

    # Where ranks look for the targets: by rank, positions and columns.

    @cached_property
    def found(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return self.found_from(self.begins)

    def found_from(self, begins: Sequence[int], first: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return them where ranks' parts begin there. first: the first column in which a rank looks."""
        columns = [self.targets - begin for begin in begins]
        rows = [np.flatnonzero((first <= c) & (c < own)) for c, own in zip(columns, self.owns, strict=True)]
        return [(r, c[r]) for r, c in zip(rows, columns, strict=True)]

    @cached_property
    def unmasked(self) -> list[list[tuple[np.ndarray, np.ndarray]]]:
        """Return them where each rank looks for all targets: from behind, in the nearest column, or in the first."""
        every, ways = np.arange(self.n), []
        for way in (np.mod, lambda c, own: c.clip(0, own - 1), lambda c, own: np.where((c >= 0) & (c < own), c, 0)):
            pairs = zip(self.begins, self.owns, strict=True)
            ways.append([(every, way(self.targets - begin, own)) for begin, own in pairs])
        return ways

    def with_targets(self, found: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
        """Return the losses where the sum over ranks has these logits, shifted or not."""
        logits, shifted = np.zeros(self.n), np.zeros(self.n)
        for part, (rows, columns) in zip(self.parts, found, strict=True):
            logits[rows] += part[rows, columns]
            shifted[rows] += part[rows, columns] - self.largest[rows]
        return [self.logarithm - logits, self.logarithm - self.largest - shifted]

    def gradients(
        self, found: Sequence[tuple[np.ndarray, np.ndarray]] | None = None, softmax: Any = None, by: float = 1.0
    ) -> list[np.ndarray]:
        """Return gradients by rank where `by` is subtracted at these places."""
        result = [part.copy() for part in softmax or self.softmax]
        for part, (rows, columns) in zip(result, found or self.found, strict=True):
            part[rows, columns] -= by
        return [part / self.n for part in result]

    def gives(self, *losses: Any) -> bool:
        """Return whether all ranks have the means of these losses by position; a list has an array for each rank."""
        for each in losses:
            means = [float(np.mean(row)) for row in (each if isinstance(each, list) else [each] * self.size)]
            if all(_near(seen.loss, mean) for seen, mean in zip(self.everyone, means, strict=True)):
                return True
        return False

    def gives_gradients(self, *gradients: Sequence[np.ndarray]) -> bool:
        """Return whether all ranks have these gradients."""
        return any(all(map(self.same, [seen.gradient for seen in self.everyone], rows)) for rows in gradients)

    def same(self, got: np.ndarray, want: np.ndarray) -> bool:
        return got.shape == want.shape and np.allclose(got, want, *self.tolerance)

    # What was asked.

    no_pair = property(lambda self: not self.seen.pair)
    no_float = property(lambda self: self.loss is None)
    no_tensor = property(lambda self: self.gradient is None)
    shape = property(lambda self: (self.n, self.owns[self.rank]))
    reshaped = property(lambda self: self.gradient.shape != self.shape)
    dtype = property(lambda self: str(self.case.dtype).removeprefix("torch."))
    other_dtype = property(lambda self: str(self.gradient.dtype) != self.dtype)
    is_float32 = property(lambda self: self.case.dtype == torch.float32)
    other_loss = property(lambda self: not _near(self.loss, self.want))
    tolerance = property(lambda self: (1e-6, 1e-9) if self.is_float32 else (1e-9, 1e-12))
    right = property(lambda self: self.gradients()[self.rank])
    difference = cached_property(
        lambda self: first_difference(
            self.gradient, self.right.astype(self.dtype), f"the gradient on rank {self.rank}", *self.tolerance
        )
    )

    # What known mistakes make of the loss.

    none_there = property(
        lambda self: any(seen.loss is not None for seen in self.everyone) and self.seen.shown == "None"
    )
    nothing = property(lambda self: self.seen.shown == "None")
    whole_vocabulary = property(lambda self: self.gradient.shape == self.whole.shape)
    not_finite = property(lambda self: not math.isfinite(self.loss))
    large = property(lambda self: self.case.offset > 0)
    overflow = property(lambda self: self.large and self.not_finite)
    there = property(lambda self: [rank for rank in self.ranks if _near(self.everyone[rank].loss, self.want)])
    who = property(lambda self: named(self.there))
    loss_rounded = property(
        lambda self: (
            (self.is_float32 and math.isclose(self.loss, self.want, rel_tol=1e-5))
            or shorter_dtype(self.loss, self.want)
        )
    )
    epsilon = property(
        lambda self: self.gives(
            *(np.log(np.exp(self.logarithm - self.largest) + e) + self.largest - self.of_target for e in EPSILONS)
        )
    )
    summed = property(lambda self: self.gives(self.losses * self.n))
    no_target = property(lambda self: self.gives(self.logarithm, self.logarithm - self.largest))
    other_places = property(lambda self: any(self.gives(*self.with_targets(found)) for found in self.unmasked))
    by_own_size = property(
        lambda self: self.gives(*self.with_targets(self.found_from([r * own for r, own in enumerate(self.owns)])))
    )
    from_0 = property(lambda self: self.gives(*self.with_targets(self.found_from([0] * self.size))))
    ends = property(lambda self: [begin + own for begin, own in zip(self.begins, self.owns, strict=True)])
    from_end = property(lambda self: self.gives(*self.with_targets(self.found_from(self.ends))))
    first_left_out = property(lambda self: self.gives(*self.with_targets(self.found_from(self.begins, 1))))

    @property
    def own_targets(self) -> bool:
        """Whether each rank knows the logits of its own targets alone, shifted or not."""
        alone = [self.found_from([self.begins[r] if r == at else -(10**6) for r in self.ranks]) for at in self.ranks]
        return self.gives(*map(list, zip(*map(self.with_targets, alone), strict=True)))

    @property
    def own_maximum(self) -> bool:
        """Whether exponentials with each rank's own shift were added up."""
        pairs = [*zip(self.parts, self.own_largest, strict=True)]
        logs = [np.log(sum(np.exp(part - m[:, None]).sum(1) for part, m in pairs)), self.logarithm - self.largest]
        of_owner = np.choose(np.searchsorted(self.begins, self.targets, side="right") - 1, self.own_largest)
        shifts = [[m] * self.size for m in (self.largest, of_owner)] + [self.own_largest]
        return self.gives(*([log + m - self.of_target for m in by_rank] for by_rank in shifts for log in logs))

    @property
    def own_sum(self) -> bool:
        return self.gives([log - self.of_target for log in self.own_logarithms])

    own_logarithms = property(
        lambda self: [
            np.log(np.exp(x - m[:, None]).sum(1)) + m for x, m in zip(self.parts, self.own_largest, strict=True)
        ]
    )

    @property
    def own_positions(self) -> bool:
        """Whether each rank has the sum or the mean of the losses of its own targets, or all have the mean of these."""
        sums = [self.losses[rows].sum() for rows, _ in self.found]
        means = [s / max(1, len(rows)) for s, (rows, _) in zip(sums, self.found, strict=True)]
        return self.gives([s / self.n for s in sums], means, np.mean(means))

    over_ranks = property(lambda self: self.gives(self.losses / self.size))
    times_ranks = property(lambda self: self.gives(self.losses * self.size))
    other_sign = property(lambda self: self.gives(-self.losses))

    # What they make of the gradient.

    gradient_not_finite = property(lambda self: not np.isfinite(self.gradient).all())
    gradient_rounded = property(
        lambda self: shorter_dtype(self.gradient, self.right, 2.0**-24 if self.is_float32 else 2.0**-53)
    )
    gradient_of_other_sign = property(lambda self: self.times == -1)
    gradient_overflow = property(lambda self: self.large and self.gradient_not_finite)
    no_mean = property(lambda self: self.times == self.n)
    nothing_subtracted = property(lambda self: self.gives_gradients(self.gradients(by=0.0)))
    subtracted_late = property(lambda self: self.gives_gradients(self.gradients(by=self.n)))
    subtracted_everywhere = property(lambda self: self.gives_gradients(*map(self.gradients, self.unmasked)))
    subtracted_in_columns = property(
        lambda self: self.gives_gradients(
            self.gradients([np.ix_(np.arange(self.n), np.unique(columns)) for _, columns in self.found])
        )
    )
    gradient_from = property(
        lambda self: self.gives_gradients(
            *(
                self.gradients(self.found_from(b))
                for b in ([r * own for r, own in enumerate(self.owns)], [0] * self.size)
            )
        )
    )

    @property
    def own_softmax(self) -> bool:
        """Whether exponentials were divided by this rank's own sum, or had this rank's own shift."""
        pairs = [*zip(self.parts, self.own_logarithms, strict=True)]
        shifted = [np.exp(p - m[:, None]) for p, m in zip(self.parts, self.own_largest, strict=True)]
        total = np.exp(self.logarithm - self.largest)
        ways = [[np.exp(x - log[:, None]) for x, log in pairs], [each / total[:, None] for each in shifted]]
        return self.gives_gradients(*(self.gradients(softmax=way) for way in ways))

    @property
    def times(self) -> float | None:
        """By what all ranks' right gradients are multiplied; None where they are not."""
        want = self.gradients()
        at = np.unravel_index(np.abs(want[0]).argmax(), want[0].shape)
        factor = round(float(self.everyone[0].gradient[at] / want[0][at]), 9)
        return factor if self.gives_gradients([row * factor for row in want]) else None

    # What was sent.

    too_many_calls = property(lambda self: len(self.sent.calls) > CALLS)
    calls = property(lambda self: len(self.sent.calls))
    most = property(lambda self: (self.size - 1) * self.n * NUMBERS * 8)
    too_many_bytes = property(lambda self: self.sent.nbytes > self.most + SLACK)
    as_many_as_logits = property(lambda self: self.sent.nbytes >= (self.size - 1) * self.parts[0].size * 4)
    times_sent = property(lambda self: self.sent.nbytes / self.most * NUMBERS)

    # What sentences show.

    by_rank = property(lambda self: ", ".join(f"{seen.loss!r} on rank {r}" for r, seen in enumerate(self.everyone)))


def _near(got: Any, want: float) -> bool:
    return isinstance(got, float) and math.isclose(got, want, rel_tol=1e-10, abs_tol=1e-11)


def _judge(case: Input, results: Sequence[Seen]) -> Finding | None:
    everyone = results[::-1] if case.turned else results
    facts = [Facts(rank, case, everyone) for rank in range(len(everyone))]
    tables = [[THROUGH_WORLD], FORM, LOSS, GRADIENT, BITS, *([SENT] if case.measured else [])]
    return next(filter(None, (judge(table, *facts) for table in tables)), None)


# -- what is said --

OUTSIDE = (
    "A target is a number in the whole vocabulary, and one rank alone has its logit. On all other ranks the target "
    "minus the beginning of the rank's part is negative, or too large: find out which targets this rank has before you "
    "look."
)
WHYS_NO_FLOAT = rules(
    none_there="Other ranks have a loss. reduce and gather bring a result to one rank alone, allreduce to all.",
    otherwise="A float was asked: .item() or float(...) makes one of a tensor or an array.",
)
WHYS_SHAPE = rules(
    whole_vocabulary="That is the gradient for the whole vocabulary. Each rank needs that of its own logits alone.",
    otherwise="A gradient has the shape of what it is the gradient of: this rank's logits.",
)
PAIR = "a loss and a gradient, on rank {rank} of {size}"
FORM = tests(
    no_pair=(PAIR, "{seen.shown}", "Return both: loss, gradient."),
    no_float=("a loss of {want} on rank {rank} of {size}", "{seen.shown}", WHYS_NO_FLOAT),
    no_tensor=(PAIR, "{seen.shown_gradient} in the place of the gradient", "The gradient is a torch.Tensor."),
    reshaped=("a gradient of shape {shape} on rank {rank} of {size}", "shape {gradient.shape}", WHYS_SHAPE),
)
OVERFLOW = (
    "exp is inf from 710 on, and 0 below -745. Subtract the largest logit that any rank has at the position before exp."
)
MASK = (
    "Ranks that do not have a target have added something for it. Of each target's logit one rank adds the value, and "
    "all others add 0."
)
BEGIN = "A rank's part begins after all tokens of the ranks before it."
WHYS_LOSS: Whys = [
    *rules(
        overflow=OVERFLOW,
        not_finite="NaN is memory that was never written, or 0 / 0. Infinity is a logarithm of 0, or a division by 0.",
        epsilon="Something is added to the sum of exponentials. With the largest logit as shift, it is at least 1.",
        loss_rounded="Right to some digits: float32 has 7. Make the logits float64 before exp and before any sum.",
        there="Only {who} has it. All ranks need the sums: Reduce brings a sum to one rank, and Allreduce to all.",
        summed="That is the sum over the positions. The mean is asked.",
        no_target="The target's logit is missing. It has to be subtracted from the logarithm of the sum.",
        own_targets=(
            "Each rank has subtracted only the target logits that it has. All ranks need those of all targets: sum "
            "them over the ranks."
        ),
        own_maximum=(
            "Each rank subtracted the largest of its own logits, so that the sums of exponentials do not belong "
            "together. All ranks have to subtract the same number: the largest logit of all ranks."
        ),
        own_sum="The sum of exponentials is this rank's own. Sum it over all ranks before you take the logarithm.",
        own_positions=(
            "That has the losses of the positions whose target this rank has. All ranks need the mean over all "
            "positions."
        ),
        by_own_size=f"Targets were looked for as if rank r's part began at r times its own size. {BEGIN}",
        from_0=f"Targets were looked for as if each rank's part began at 0. {BEGIN}",
        from_end=(
            "Targets were looked for as if each rank's part began where it ends. scan adds this rank's own number, and "
            "exscan does not."
        ),
        first_left_out="The first token of each part was not found: a part begins with the token at its beginning.",
        other_places=MASK,
        over_ranks="Divided by the number of ranks. The mean is over the positions, and all ranks have the same one.",
        times_ranks="That is the loss, added up over the ranks. All ranks have the same loss already.",
        other_sign="The sign is wrong: the loss is the logarithm of the sum minus the target's logit.",
    ),
    chunks.ABOUT,
    "At each position the loss is the logarithm of the sum of all exponentials, plus what was subtracted before exp, "
    "minus the target's logit. The mean over all positions is asked.",
]
LOSS = tests(other_loss=("a loss of {want} on rank {rank} of {size}, with {case.what}", "{loss!r}", WHYS_LOSS))
WHYS_GRADIENT: Whys = [
    *rules(
        gradient_overflow=OVERFLOW,
        gradient_not_finite="NaN is memory that was never written, or 0 / 0.",
        gradient_rounded="Rounded on the way: compute in float64, and round the result once to the logits' dtype.",
        no_mean="That is the gradient of the sum over the positions. That of their mean is 1 / n of it.",
        gradient_of_other_sign="The sign is wrong: the gradient points to where the loss grows.",
        times="Right but for a factor of {times:.4g}. The loss is one mean, the same on all ranks.",
        nothing_subtracted="The softmax is right. At each target that this rank has, 1 has to be subtracted.",
        subtracted_late="The softmax was divided by n, and then 1 was subtracted. Divide both by n: subtract 1 first.",
        subtracted_in_columns=(
            "1 was subtracted in all positions. [:, columns] is every row, and [rows, columns] is one column in each "
            "row."
        ),
        own_softmax=(
            "The softmax is this rank's own. All ranks subtract the same largest logit, and divide by the sum of all "
            "ranks' exponentials."
        ),
        gradient_from=f"1 was subtracted at the tokens of other ranks. {BEGIN}",
        subtracted_everywhere="1 was subtracted on ranks that do not have the target. One rank alone has it.",
    ),
    chunks.ABOUT,
    "The gradient is the softmax, minus 1 at the target, divided by n.",
]
GRADIENT = tests(
    other_dtype=(
        "a gradient of {dtype}, as the logits are",
        "{gradient.dtype}",
        "Compute in float64, and return the gradient in the logits' dtype: gradient.to(logits.dtype).",
    ),
    difference=("{difference[0]}", "{difference[1]}, with {case.what}", WHYS_GRADIENT),
)
BITS = [
    Test(
        "other bits",
        lambda f: len({seen.loss for seen in f.everyone}) > 1,
        "the same bits of the loss on all ranks",
        "{by_rank}",
        "Rounding depends on the order of additions: let all ranks add in one order, as Allreduce does.",
    )
]
WHYS_BYTES = rules(
    as_many_as_logits="Right, but as many numbers are sent as there are logits. Three a position are enough.",
    otherwise="Right, but that is {times_sent:.3g} numbers a position for each other rank. Three are enough.",
)
SENT = [
    *tests(
        too_many_calls=(
            "at most 8 collective calls for {n} positions on rank {rank} of {size}",
            "{calls}",
            "Right, but each call waits for the network's latency. A call sends an array with a number for each "
            "position.",
        ),
    ),
    PICKLED,
    *tests(
        too_many_bytes=(
            "at most {most} bytes to be sent for {n} positions by rank {rank} of {size}",
            "{sent.by}",
            WHYS_BYTES,
        ),
    ),
]
