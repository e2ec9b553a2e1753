"""What e06_sync_batch_norm is asked: one process's batch norm and its gradients, by one collective call each way."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.fx.experimental.symbolic_shapes  # what a backward that is given gradients imports: before the clock starts

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Case, all_on_real, all_on_virtual
from mpcourse.course.check.facts.gradients import gradients_of
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import Finding, Rule, Test, Whys, judge
from mpcourse.course.check.wrong import first_difference, short
from mpcourse.virtual.ranks import VirtualRun
from mpcourse.virtual.ranks.comm import VirtualComm

NAME = "sync_batch_norm"
FEATURES = 3
MANY = 500  # examples of a rank: so few that a right answer may go through them one by one in Python
MOST = 2000  # bytes that a collective call may carry for them; a float64 of each would take twice as many
EPS = "eps is an argument, 1e-5 by default."
EMPTY = "A rank without examples brings zeros to both collective calls, and returns an output without rows."

# -- inputs --


class Given(NamedTuple):
    """xs, dys: by rank, float64, (examples, features): inputs, and outputs' gradients. weight, bias: (features,)."""

    xs: list[np.ndarray]
    dys: list[np.ndarray]
    weight: np.ndarray
    bias: np.ndarray


@dataclass(frozen=True)
class Batches(Case):
    """Batches to normalize.

    lengths: examples, by rank. offset: the value around which x lies. layers: calls one after the other, before
    backward. why: as `Case.stumbled`. back: whether gradients are judged; else the output.
    """

    lengths: Callable[[int], Sequence[int]]
    dtype: torch.dtype = torch.float64
    offset: float = 0.5
    eps: float = 1e-5
    layers: int = 1
    why: str = ""
    back: bool = False
    sizes: Sequence[int] = SIZES

    def asked(self, size: int) -> str:
        counts = ", ".join(map(str, self.lengths(size)))
        return f"batches of {counts} examples" if size > 1 else f"a batch of {counts}"

    def stumbled(self, size: int) -> tuple[str, str] | None:
        return (f"{NAME} of {self.asked(size)}", self.why) if self.why else None

    @functools.cache  # noqa: B019
    def given(self, size: int) -> Given:
        """Draw what each rank is given: in float64, but numbers that the case's dtype holds."""
        draw = [np.random.default_rng([size, rank, 7]) for rank in range(size)]
        shapes = [(n, FEATURES) for n in self.lengths(size)]
        # Ranks lie apart, so that means of deviations are no deviation of all.
        xs = [
            d.standard_normal(s) * (1 + r) + self.offset + r for r, (d, s) in enumerate(zip(draw, shapes, strict=True))
        ]
        dys = [d.standard_normal(s) + 0.3 for d, s in zip(draw, shapes, strict=True)]
        weight, bias = np.random.default_rng(size).uniform(0.5, 2.0, (2, FEATURES))
        kind = str(self.dtype)[6:]
        weight, bias, *rows = (each.astype(kind).astype(float) for each in (weight, bias, *xs, *dys))
        return Given(rows[:size], rows[size:], weight, bias)

    @functools.cache  # noqa: B019
    def wanted(self, size: int) -> list[dict[str, Any]]:
        """Return each rank's output and gradients, by torch, from all examples in one process."""
        given = self.given(size)
        xs = [torch.tensor(x, requires_grad=True) for x in given.xs]
        own = [[torch.tensor(each, requires_grad=True) for each in (given.weight, given.bias)] for _ in range(size)]
        ys = xs
        for _ in range(self.layers):
            whole = torch.cat(ys)
            normal = (whole - whole.mean(0)) / (whole.var(0, unbiased=False) + self.eps).sqrt()
            parts = normal.split([len(y) for y in ys])
            ys = [part * weight + bias for part, (weight, bias) in zip(parts, own, strict=True)]
        torch.autograd.backward(ys, [torch.tensor(dy) for dy in given.dys])
        return [
            {"y": y.detach().numpy()} | gradients_of({"x": x, "weight": weight, "bias": bias})
            for y, x, (weight, bias) in zip(ys, xs, own, strict=True)
        ]

    # -- observation --

    def program(self, own: Answer, comm: Any) -> "Seen":
        given = self.given(comm.size)
        values = {"x": given.xs[comm.rank], "weight": given.weight, "bias": given.bias}
        leaves = {name: torch.tensor(each, dtype=self.dtype, requires_grad=True) for name, each in values.items()}
        options = () if self.eps == 1e-5 else (self.eps,)
        y = x = leaves["x"]
        for _ in range(self.layers):
            y = own.call(NAME, comm, y, leaves["weight"], leaves["bias"], *options, changes=() if y is x else (y,))
        known = getattr(y, "requires_grad", False)
        if self.back:
            results = _gradients(own, y, torch.tensor(given.dys[comm.rank], dtype=self.dtype), leaves)
        else:
            is_array = isinstance(y, torch.Tensor) and y.layout is torch.strided
            results = {"y": y.detach().numpy().copy() if is_array else short(y)}
        calls = comm.world.collectives[comm.me] if isinstance(comm, VirtualComm) else []
        return Seen(results, known, max((call.nbytes for call in calls), default=0))

    def findings(self, seen: "Sequence[Seen]") -> Iterator[Finding | None]:
        size, wanted = len(seen), self.wanted(len(seen))
        if self.back:
            for of in ("x", "weight", "bias"):
                yield judge(GRADIENTS, *[Facts(r, of, self, size, seen[r], wanted[r][of]) for r in range(size)])
        else:
            ranks = reversed(range(size))  # on rank 0, its own sums look like those of all
            yield judge(OUTPUTS, *[Facts(r, "y", self, size, seen[r], wanted[r]["y"]) for r in ranks])

    def judge_run(self, run: VirtualRun) -> Finding | None:
        return judge(EXCHANGES, Exchange(self, run))


def _gradients(own: Answer, y: Any, dy: torch.Tensor, leaves: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return the gradients of the leaves; in their place the text of the error by which autograd refuses them."""
    try:
        own.run(y.backward, "backward", dy)
    except RuntimeError as error:
        text = str(error).splitlines()[0]
        if "incorrect number of gradients" not in text and "invalid gradient" not in text:
            raise
        own.returned()  # the others may have come back without one
        return dict.fromkeys(leaves, text)
    return gradients_of(leaves)


UNEQUAL = Batches(lambda size: [5, 2, 7, 3][:size], why="Batches differ in length: count the examples of all ranks.")
SOME_EMPTY = Batches(lambda size: [3, 0, 5, 2][:size], why=EMPTY)
CASES = (
    Batches(lambda size: [4, 4, 4, 4][:size]),
    UNEQUAL,
    SOME_EMPTY,
    Batches(lambda size: [0, 4, 3, 2][:size] if size > 1 else [2], why=EMPTY),
    Batches(lambda size: [1] + [0] * (size - 1), why="One example in all is its own mean: the output is bias."),
    Batches(lambda size: [3, 5, 2, 4][:size], eps=0.1, why=EPS),
    Batches(lambda size: [3, 6, 2, 4][:size], torch.float32, why="x is float32 here, and so is what comes back."),
    Batches(
        lambda size: [6, 5, 8, 7][:size],
        torch.float32,
        offset=1000.0,
        why="Here values lie around 1000, in float32, and what was right before is not any more: the difference of two "
        "large sums has no right digit left. x.double() first, and back to x's dtype at the end.",
    ),
    Batches(
        lambda size: [3, 5, 2, 4][:size], layers=2, why="Two layers in a row: what a call keeps is its own, in ctx."
    ),
    Batches(lambda size: [MANY] * size, sizes=(3,)),
)


def _both(*cases: Batches) -> list[Batches]:
    """Return each case twice: its output is judged, and then its gradients."""
    return [replace(case, back=back) for case in cases for back in (False, True)[case.layers - 1 :]]


check = functools.partial(all_on_real, cases=_both(UNEQUAL, SOME_EMPTY))
check_virtually = functools.partial(all_on_virtual, cases=_both(*CASES))

# -- facts --


class Seen(NamedTuple):
    """On one rank. results: by name an array, None, or a text in its place. known: whether autograd knows the output.

    nbytes: of the largest collective call; on real ranks 0.
    """

    results: dict[str, Any]
    known: bool
    nbytes: int


@dataclass(frozen=True)
class Facts:
    """An output of the function, or a gradient, on one rank. of: "y", "x", "weight" or "bias". want: what is right."""

    rank: int
    of: str
    case: Batches
    size: int
    seen: Seen
    want: np.ndarray

    got = property(lambda self: self.seen.results[self.of])
    given = property(lambda self: self.case.given(self.size))
    x, dy = property(lambda self: self.given.xs[self.rank]), property(lambda self: self.given.dys[self.rank])
    weight, bias = property(lambda self: self.given.weight), property(lambda self: self.given.bias)
    tolerance = property(lambda self: 1e-3 if self.case.dtype == torch.float32 else 1e-7 if self.case.why else 1e-8)

    @functools.cached_property
    def difference(self) -> tuple[str, str] | None:
        return first_difference(self.got, self.want.astype(self.got.dtype), self.what, self.tolerance, self.tolerance)

    def near(self, *values: np.ndarray) -> bool:
        """Return whether it is one of `values`, as a misconception makes them, and more so than what is right.

        Among float32 numbers around 1000 that cannot be seen, and for several layers the values are others.
        """
        if self.case.offset > 100 or self.case.layers > 1:
            return False
        near = functools.partial(np.allclose, rtol=self.tolerance / 50, atol=self.tolerance / 50)
        far = [v for v in values if not np.allclose(v, self.want, self.tolerance, self.tolerance)]
        return any(near(self.got, value) for value in far)

    @property
    def rounded(self) -> str:
        """What sums were rounded to. The first case shows it."""
        if self.case.why:
            return ""
        scale = np.full(self.want.shape, 2 * np.abs(self.want).max(initial=0.0))
        name = shorter_dtype(self.got, self.want, scale=scale)
        return "16 bits" if name.endswith("16") else name

    # Statistics: of all ranks, of this one, and of the ranks that have examples.

    total = property(lambda self: sum(map(len, self.given.xs)))
    mean = property(lambda self: np.concatenate(self.given.xs).mean(0))
    variance = property(lambda self: np.concatenate(self.given.xs).var(0))
    deviation = property(lambda self: np.sqrt(self.variance + self.case.eps))
    normal = property(lambda self: (self.x - self.mean) / self.deviation)
    count = property(lambda self: max(len(self.x), 1))
    own = property(lambda self: self.x if len(self.x) else np.zeros((1, FEATURES)))
    full = property(lambda self: [x for x in self.given.xs if len(x)])
    variances = property(lambda self: np.array([x.var(0) for x in self.full]))
    counts = property(lambda self: np.array([[len(x)] for x in self.full]))

    def by(self, mean: Any, variance: Any) -> np.ndarray:
        """Return the output by another mean and variance."""
        return (self.x - mean) / np.sqrt(variance + self.case.eps) * self.weight + self.bias

    @property
    def by_means_of_ranks(self) -> list[np.ndarray]:
        """Return outputs by the mean of means of the ranks that have examples, or of all ranks."""
        outputs = []
        for ranks in (len(self.full), self.size):
            mean = np.sum([x.mean(0) for x in self.full], axis=0) / ranks
            squares = np.sum([np.square(x).mean(0) for x in self.full], axis=0) / ranks
            variances = (squares - mean**2, self.variances.sum(0) / ranks, self.variance)
            outputs += [self.by(mean, variance) for variance in variances]
        return outputs

    @property
    def missing(self) -> str:
        n, weight, bias = self.normal, self.weight, self.bias
        parts = {"weight and bias are": n, "bias is": n * weight, "weight is": n + bias}
        return next((what for what, y in parts.items() if self.near(y)), "")

    # Sums, each of two rows: of dy, and of dy * normalised x, which come through the mean and through the variance.

    own_sums = property(lambda self: self.sums_of(self.rank))
    sums = property(lambda self: sum(self.sums_of(rank) for rank in range(self.size)))
    whole = property(lambda self: self.sums[int(self.of == "weight")])
    other = property(lambda self: self.own_sums[int(self.of == "bias")])

    def sums_of(self, rank: int) -> np.ndarray:
        normal = (self.given.xs[rank] - self.mean) / self.deviation
        return np.array([self.given.dys[rank].sum(0), (self.given.dys[rank] * normal).sum(0)])

    along, across = property(lambda self: self.sums[0] / self.total), property(lambda self: self.sums[1] / self.total)
    y = property(lambda self: self.by(self.mean, self.variance))
    across_y = property(lambda self: self.weight * self.across + self.bias * self.along)  # the mean of dy * y

    def x_is(self, through_mean: Any, through_variance: Any, normal: Any = None, factor: Any = 1.0) -> bool:
        """Return whether it is the gradient of x, if these came through mean and variance.

        normal: what is in the place of the normalised x. factor: by which all of it is multiplied.
        """
        inside = self.dy - through_mean - (self.normal if normal is None else normal) * through_variance
        return self.of == "x" and self.near(factor * self.weight / self.deviation * inside)

    @property
    def without_eps(self) -> bool:
        """Whether eps is missing in 1 / deviation, and perhaps in the normalised x. The first case shows it."""
        if self.case.why:
            return False
        k = self.deviation / np.sqrt(self.variance)
        return self.x_is(self.along, self.across * k, self.normal * k, k) or self.x_is(
            self.along, self.across, factor=k
        )

    def part_is(self, *values: np.ndarray) -> bool:
        return self.of in ("weight", "bias") and self.near(*values)

    # What sentences show.

    batches = property(lambda self: self.case.asked(self.size))
    kind = property(lambda self: str(self.case.dtype)[6:])
    asked, found = property(lambda self: self.difference[0]), property(lambda self: self.difference[1])
    hint_or_empty = property(lambda self: self.case.why or EMPTY)

    @property
    def what(self) -> str:
        what = f"y of {self.batches}" if self.of == "y" else f"the gradient of {self.of} for {self.batches}"
        return f"{what} on rank {self.rank}"


@dataclass(frozen=True)
class Exchange:
    """What virtual ranks exchanged."""

    case: Batches
    run: VirtualRun

    what = property(lambda self: "forward and backward" if self.case.back else "forward")
    most = property(lambda self: (1 + self.case.back) * self.case.layers)
    names = property(lambda self: self.run.collectives[0])
    messages = property(lambda self: int(self.run.messages.sum()))
    calls = property(lambda self: counted(self.most, "collective call"))
    made = property(lambda self: f"{len(self.names)}: {', '.join(self.names)}")


# -- what is said --

COUNT_ALL = (
    "in which a rank with few examples counts as much as one with many. Sum values and counts over all ranks, and "
    "divide once."
)
OTHERS = "sum what they need over all ranks."
LOSS = "by the number of ranks. L is the sum of all ranks' losses: each x has its gradient as it is."

GROWTH = Test(
    "grows",
    lambda f: f.seen.nbytes > MOST,
    f"some sums for each feature to be sent, as many for {MANY} examples on each rank as for 4",
    "a collective call of {seen.nbytes} bytes for {batches}",
    "Sums over this rank's examples first, then over ranks. The examples themselves need not travel.",
)
KINDS = [
    Test(
        "shape",
        lambda f: f.got.shape != f.want.shape,
        "{what} of shape {want.shape}",
        "shape {got.shape}",
        "An output has the shape of x, and a gradient that of what it is the gradient of.",
    ),
    Test(
        "dtype",
        lambda f: f.got.dtype != f.kind,
        "{what} of {kind}",
        "{got.dtype}",
        "Sums are made in float64; what is returned has the dtype that x has: .to(x.dtype).",
    ),
]
NOT_FINITE = Rule(
    "not finite", lambda f: not np.isfinite(f.got).all(), "That is 0 / 0, or a root of less than 0. {hint_or_empty}"
)
# These come after values that misconceptions give to the last digit, which some features take for rounding.
LAST_WHYS: list[Rule] = [
    Rule(
        "rounded",
        lambda f: f.rounded,
        "That is right but for rounding to {rounded}. Sums are made, and travel, in float64: x.double() first, and "
        "back to x's dtype at the end.",
    ),
    Rule("right before", lambda f: f.case.why, "{case.why}"),
]
WHYS_OUTPUT: Whys = [
    NOT_FINITE,
    Rule(
        "own statistics",
        lambda f: f.near(f.by(f.own.mean(0), f.own.var(0))),
        f"These are mean and variance of this rank's own batch: {OTHERS}",
    ),
    Rule(
        "rank 0's statistics",
        lambda f: len(f.given.xs[0]) > 0 and f.near(f.by(f.given.xs[0].mean(0), f.given.xs[0].var(0))),
        f"These are mean and variance of rank 0's batch: {OTHERS} (The sum of tuples, or of lists, is one after the "
        "other; arrays and tensors are added element by element.)",
    ),
    Rule(
        "mean of variances",
        lambda f: f.near(f.by(f.mean, (f.counts * f.variances).sum(0) / f.total)),
        "The variance is the mean of the ranks' variances. How far the ranks' means lie apart belongs to it, too: take "
        "it from the sum of squares over all ranks, or from deviations from the mean of all.",
    ),
    Rule(
        "mean of means", lambda f: f.near(*f.by_means_of_ranks), f"That takes the mean of the ranks' means, {COUNT_ALL}"
    ),
    Rule(
        "own variance",
        lambda f: f.near(f.by(f.mean, f.own.var(0))),
        "The mean is over all ranks, the variance over this one alone.",
    ),
    Rule(
        "own mean",
        lambda f: f.near(f.by(f.own.mean(0), f.variance)),
        "The variance is over all ranks, the mean over this one alone.",
    ),
    Rule(
        "unbiased variance",
        lambda f: f.near(f.by(f.mean, f.variance * f.total / (f.total - 1))),
        "That is the unbiased variance, divided by the number of examples minus one. Batch norm normalises by the "
        "biased one, divided by the number of examples.",
    ),
    Rule(
        "eps outside the root",
        lambda f: f.near((f.x - f.mean) / (np.sqrt(f.variance) + f.case.eps) * f.weight + f.bias),
        "eps is added to the deviation there. It belongs under the root: sqrt(variance + eps).",
    ),
    Rule(
        "no eps",
        lambda f: f.near(f.by(f.mean, f.variance - f.case.eps)),
        "eps is missing under the root: sqrt(variance + eps).",
    ),
    Rule(
        "another eps", lambda f: f.near(*[f.by(f.mean, f.variance - f.case.eps + 10.0**-k) for k in range(3, 13)]), EPS
    ),
    Rule(
        "divided by the variance",
        lambda f: f.near(f.normal / f.deviation * f.weight + f.bias),
        "That divides by the variance. The deviation is its root.",
    ),
    Rule("weight or bias", lambda f: f.missing, "{missing} missing: y = normalised x * weight + bias."),
    Rule("no mean", lambda f: f.near(f.by(np.zeros(FEATURES), f.variance)), "The mean is not subtracted."),
    Rule(
        "mean of squares",
        lambda f: f.near(f.by(f.mean, f.variance + f.mean**2)),
        "The variance is that of the mean of squares, from which the mean's square was not subtracted.",
    ),
    *LAST_WHYS,
    "Mean and variance are over the examples of all ranks.",
]
OUTPUTS = [
    Test(
        "no tensor",
        lambda f: isinstance(f.got, str),
        "{what} to be a tensor",
        "{got}",
        [Rule("None", lambda f: f.got == "None", "Nothing came back: is the result returned?")],
    ),
    *KINDS,
    Test(
        "detached",
        lambda f: not f.seen.known,
        "{what} to depend on x",
        "a tensor that autograd knows nothing of",
        "Its gradient is asked for next. What is computed in an autograd.Function's forward has the gradient of "
        "backward.",
    ),
    Test("value", lambda f: f.difference, "{asked}", "{found}", WHYS_OUTPUT),
    GROWTH,
]
WHYS_GRADIENT: Whys = [
    NOT_FINITE,
    Rule(
        "constants",
        lambda f: f.x_is(0.0, 0.0),
        "Mean and variance are treated as constants there. Each x is in both, and so in every example's y: two more "
        "terms, with sums over all ranks.",
    ),
    Rule(
        "own sums",
        lambda f: f.x_is(*f.own_sums / f.count),
        "The two sums are over this rank's examples alone. Mean and variance are over all ranks: so are the sums.",
    ),
    Rule(
        "own sums over all examples",
        lambda f: f.x_is(*f.own_sums / f.total),
        "The two sums are over this rank's examples alone, divided by the number of all. They need the examples of all "
        "ranks: the second collective call.",
    ),
    Rule(
        "not through the variance",
        lambda f: f.x_is(f.along, 0.0),
        "The term that comes through the variance is missing.",
    ),
    Rule(
        "not through the mean",
        lambda f: f.x_is(0.0, f.across),
        "The term that comes through the mean is missing.",
    ),
    Rule(
        "sums over own count",
        lambda f: f.x_is(*f.sums / f.count),
        "The two sums are divided by this rank's number of examples: divide by that of all ranks.",
    ),
    Rule("sums not divided", lambda f: f.x_is(*f.sums), "The two sums are not divided by the number of examples."),
    Rule(
        "sums over ranks",
        lambda f: f.x_is(*f.sums / f.size),
        "The two sums are divided by the number of ranks: divide by the number of all examples.",
    ),
    Rule(
        "sums over ranks, too",
        lambda f: f.x_is(*f.sums / f.total / f.size),
        "The two sums are divided by the number of ranks, too: they are sums over all ranks, divided by the number of "
        "all examples alone.",
    ),
    Rule(
        "no normalised x",
        lambda f: f.x_is(f.along, f.across, normal=1.0),
        "The mean of dy * normalised x is subtracted as it is. It comes through the deviation: multiply it by the "
        "normalised x of each example first.",
    ),
    Rule(
        "y for the normalised x",
        lambda f: f.x_is(f.along, f.across_y, f.y),
        "y is taken for the normalised x. They are the same only where weight is 1 and bias 0.",
    ),
    Rule(
        "no eps in backward",
        lambda f: f.without_eps,
        "eps is missing in backward: the deviation is sqrt(variance + eps) there, too.",
    ),
    Rule("over ranks", lambda f: f.of == "x" and f.near(f.want / f.size), f"It is divided {LOSS}"),
    Rule("times ranks", lambda f: f.of == "x" and f.near(f.want * f.size), f"It is multiplied {LOSS}"),
    Rule("no weight", lambda f: f.of == "x" and f.near(f.want / f.weight), "weight is missing in the gradient of x."),
    Rule(
        "no deviation",
        lambda f: f.of == "x" and f.near(f.want * f.deviation),
        "1 / deviation is missing in the gradient of x.",
    ),
    Rule(
        "sum over ranks",
        lambda f: f.part_is(f.whole),
        "That is the sum over all ranks. The optimizer adds up the ranks' gradients of every parameter: this one would "
        "be counted twice: return this rank's part, as it was before the collective call.",
    ),
    Rule(
        "mean over ranks",
        lambda f: f.part_is(f.whole / f.size),
        "That is the mean over all ranks. Return this rank's part: the optimizer averages.",
    ),
    Rule(
        "part over ranks",
        lambda f: f.part_is(f.want / f.size),
        "This rank's part, divided by the number of ranks: the optimizer does that.",
    ),
    Rule(
        "swapped",
        lambda f: f.part_is(f.other),
        "That is the gradient of the other one: bias has the sum of dy, weight that of dy * normalised x.",
    ),
    Rule(
        "dy * y",
        lambda f: f.of == "weight" and f.near((f.dy * f.by(f.mean, f.variance)).sum(0)),
        "That is the sum of dy * y. weight multiplies the normalised x, before weight and bias.",
    ),
    Rule(
        "dy * x",
        lambda f: f.of == "weight" and f.near((f.dy * f.x).sum(0)),
        "That is the sum of dy * x. weight multiplies the normalised x.",
    ),
    Rule(
        "over examples",
        lambda f: f.part_is(f.want / f.count, f.want / f.total),
        "It is divided by the number of examples. y depends on it in each of them: a sum.",
    ),
    *LAST_WHYS,
    "y is right, and so are mean and variance: what differs is made in backward.",
]
GRADIENTS = [
    Test(
        "refused",
        lambda f: isinstance(f.got, str),
        "backward to return gradients of x, weight and bias",
        "{got}",
        "backward returns one gradient for each argument of forward, of its shape; None for comm and eps.",
    ),
    Test(
        "None",
        lambda f: f.got is None,
        "{what}",
        "None",
        "backward returns a gradient for each argument of forward, in its order: x, weight and bias first.",
    ),
    *KINDS,
    Test("value", lambda f: f.difference, "{asked}", "{found}", WHYS_GRADIENT),
    GROWTH,
]
EXCHANGES = [
    Test(
        "messages",
        lambda f: f.messages,
        "{what} by {calls}",
        "{messages} messages from rank to rank",
        "An all-reduce of one's own is many messages, and slower than MPI's: comm.Allreduce, or comm.allreduce.",
    ),
    Test(
        "too many calls",
        lambda f: len(f.names) > f.most,
        "{what} by {calls}",
        "{made}",
        [
            Rule(
                "Barrier",
                lambda f: "Barrier" in f.names,
                "A collective call waits for all ranks by itself. It needs no Barrier.",
            ),
            "What is to be summed can travel together: torch.cat or torch.stack make one array of it.",
        ],
    ),
]
