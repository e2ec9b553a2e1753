"""What e06_sync_batch_norm is asked: one process's batch norm and its gradients, by one collective call each way."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.fx.experimental.symbolic_shapes  # what a backward that is given gradients imports: before the clock starts

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Finding, Program, on_real, on_virtual
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import Rule, Test, always, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import first_difference, short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm
    from mpcourse.course.check.virtual_run import Ran

NAME = "sync_batch_norm"
FEATURES = 3
EPS = "eps is an argument, 1e-5 by default."
EMPTY = "A rank without examples brings zeros to both collective calls, and returns an output without rows."

# -- inputs --


@dataclass(frozen=True)
class Batches:
    """lengths: examples, by rank. offset: around which x lies. layers: calls one after the other, before backward."""

    lengths: Callable[[int], Sequence[int]]
    dtype: torch.dtype = torch.float64
    offset: float = 0.5
    eps: float = 1e-5
    layers: int = 1
    why: str = ""  # of an answer that was right until then

    @functools.cache  # noqa: B019
    def norm(self, size: int) -> "Norm":
        """What each rank is given; float32's values are float32's."""
        kind = np.float32 if self.dtype == torch.float32 else np.float64
        draw = [np.random.default_rng([size, rank, 7]) for rank in range(size)]
        shapes = [(n, FEATURES) for n in self.lengths(size)]
        # Ranks lie apart, so that means of deviations are no deviation of all.
        xs = [
            d.standard_normal(s) * (1 + r) + self.offset + r for r, (d, s) in enumerate(zip(draw, shapes, strict=True))
        ]
        dys = [d.standard_normal(s) + 0.3 for d, s in zip(draw, shapes, strict=True)]
        weight, bias = np.random.default_rng(size).uniform(0.5, 2.0, (2, FEATURES))
        weight, bias, *rows = (each.astype(kind).astype(float) for each in (weight, bias, *xs, *dys))
        return Norm(rows[:size], rows[size:], weight, bias, self.eps)

    def asked(self, size: int) -> str:
        counts = ", ".join(map(str, self.lengths(size)))
        return f"batches of {counts} examples" if size > 1 else f"a batch of {counts}"


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
)


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    for ranks in (comm, turned(comm)):
        for case in (UNEQUAL, SOME_EMPTY):
            on_real(answer, ranks, _forward(case), functools.partial(_judge_forward, case))
            on_real(answer, ranks, _backward(case), functools.partial(_judge_backward, case))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for case in CASES:
        for size in SIZES:
            stumbled = (f"{NAME} of {case.asked(size)}", case.why) if case.why else None
            if case.layers == 1:
                judged = functools.partial(_judge_forward, case)
                _count(on_virtual(answer, comm, size, _forward(case), judged, stumbled), "forward", 1)
            judged = functools.partial(_judge_backward, case)
            ran = on_virtual(answer, comm, size, _backward(case), judged, stumbled)
            _count(ran, "forward and backward", 2 * case.layers)
    seconds = []
    for length in (4, 4000):
        case = Batches(lambda size, length=length: [length] * size)  # type: ignore[misc]
        ran = on_virtual(answer, comm, 3, _backward(case), functools.partial(_judge_backward, case))
        seconds.append(ran.run.seconds)
    if finding := judge(GROWTH, Growth(seconds[1] / seconds[0])):
        raise ran.wrong(*finding)


def _count(ran: "Ran", what: str, most: int) -> None:
    names = [e.name for e in ran.run.events if e.lane == "rank 0" and e.kind == "wait"]
    if finding := judge(EXCHANGES, Exchange(what, most, int(ran.run.messages.sum()), names)):
        raise ran.wrong(*finding)


# -- the oracle --


@dataclass(frozen=True)
class Norm:
    """A layer of batch norm over ranks. xs, dys: by rank, float64, (examples, features): inputs; outputs' gradients.

    weight, bias: (features,).
    """

    xs: list[np.ndarray]
    dys: list[np.ndarray]
    weight: np.ndarray
    bias: np.ndarray
    eps: float

    total = property(lambda self: sum(map(len, self.xs)))  # examples of all ranks
    mean = property(lambda self: np.concatenate(self.xs).mean(0))
    variance = property(lambda self: np.concatenate(self.xs).var(0))
    deviation = property(lambda self: np.sqrt(self.variance + self.eps))

    def normal(self, rank: int) -> np.ndarray:
        return (self.xs[rank] - self.mean) / self.deviation

    def output(self, rank: int) -> np.ndarray:
        return self.normal(rank) * self.weight + self.bias

    def of_bias(self, rank: int) -> np.ndarray:
        return self.dys[rank].sum(0)

    def of_weight(self, rank: int) -> np.ndarray:
        return (self.dys[rank] * self.normal(rank)).sum(0)

    def whole(self, of: Callable[[int], np.ndarray]) -> np.ndarray:
        """The sum over ranks of the gradients of weight or of bias."""
        return np.sum([of(rank) for rank in range(len(self.xs))], axis=0)

    def of_x(self, rank: int) -> np.ndarray:
        return self.through(rank, self.whole(self.of_bias) / self.total, self.whole(self.of_weight) / self.total)

    def through(self, rank: int, along: np.ndarray | float, across: np.ndarray | float) -> np.ndarray:
        """The gradient of this rank's x; along, across: what comes through the mean, and through the variance."""
        return self.weight / self.deviation * (self.dys[rank] - along - self.normal(rank) * across)

    def gradients(self, layers: int) -> list[tuple[np.ndarray, ...]]:
        """By rank, of x, weight and bias: of several layers by torch, for all examples in one process."""
        size = len(self.xs)
        if layers == 1:
            return [(self.of_x(rank), self.of_weight(rank), self.of_bias(rank)) for rank in range(size)]
        xs = [torch.tensor(x, requires_grad=True) for x in self.xs]
        own = [[torch.tensor(each, requires_grad=True) for each in (self.weight, self.bias)] for _ in range(size)]
        ys = xs
        for _ in range(layers):
            whole = torch.cat(ys)
            normal = (whole - whole.mean(0)) / (whole.var(0, unbiased=False) + self.eps).sqrt()
            parts = normal.split([len(y) for y in ys])
            ys = [part * weight + bias for part, (weight, bias) in zip(parts, own, strict=True)]
        torch.autograd.backward(ys, [torch.tensor(dy) for dy in self.dys])
        leaves = [(x, weight, bias) for x, (weight, bias) in zip(xs, own, strict=True)]
        return [tuple(p.grad.numpy() for p in each) for each in leaves]  # type: ignore[union-attr]


# -- observation --


def _given(case: Batches, comm: Any) -> tuple[torch.Tensor, ...]:
    norm = case.norm(comm.size)
    values = (norm.xs[comm.rank], norm.weight, norm.bias)
    return tuple(torch.tensor(value, dtype=case.dtype, requires_grad=True) for value in values)


def _call(own: Answer, comm: Any, case: Batches, x: torch.Tensor, *given: torch.Tensor) -> Any:
    options = () if case.eps == 1e-5 else (case.eps,)
    return own.call(NAME, comm, x, *given, *options, changes=() if x.is_leaf else (x,))


def _forward(case: Batches) -> Program:
    """The output, or the text of what came back in place of a tensor, and whether autograd knows it."""

    def program(own: Answer, comm: Any) -> tuple[Any, bool]:
        y = _call(own, comm, case, *_given(case, comm))
        if not isinstance(y, torch.Tensor) or y.layout is not torch.strided:
            return short(y), False
        return y.detach().numpy().copy(), y.requires_grad

    return program


def _backward(case: Batches) -> Program:
    """The gradients of x, weight and bias, or the text of the error by which autograd refuses them."""

    def program(own: Answer, comm: Any) -> Any:
        x, weight, bias = _given(case, comm)
        y = x
        for _ in range(case.layers):
            y = _call(own, comm, case, y, weight, bias)
        dy = torch.tensor(case.norm(comm.size).dys[comm.rank], dtype=case.dtype)
        try:
            own.run(y.backward, "backward", dy)
        except RuntimeError as error:
            text = str(error).splitlines()[0]
            if "incorrect number of gradients" not in text and "invalid gradient" not in text:
                raise
            own.returned()  # the others may have come back without one
            return text
        return [None if p.grad is None else p.grad.numpy().copy() for p in (x, weight, bias)]

    return program


@dataclass(frozen=True)
class Facts:
    """An output of the function, or a gradient, on one rank. of: "y", "x", "weight" or "bias".

    got: what came, or a text in its place. differentiable: whether autograd knows it.
    """

    rank: int
    of: str
    case: Batches
    size: int
    got: Any
    want: np.ndarray
    differentiable: bool = True

    norm = property(lambda self: self.case.norm(self.size))
    x, dy = property(lambda self: self.norm.xs[self.rank]), property(lambda self: self.norm.dys[self.rank])
    tolerance = property(lambda self: 1e-3 if self.case.dtype == torch.float32 else 1e-7 if self.case.why else 1e-8)

    @functools.cached_property
    def difference(self) -> tuple[str, str] | None:
        return first_difference(self.got, self.want.astype(self.got.dtype), self.what, self.tolerance, self.tolerance)

    def near(self, *values: np.ndarray) -> bool:
        """Whether it is one of `values`, as a misconception makes them, and more so than what is right.

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

    # Of outputs.

    full = property(lambda self: [x for x in self.norm.xs if len(x)])
    means = property(lambda self: np.array([x.mean(0) for x in self.full]))
    variances = property(lambda self: np.array([x.var(0) for x in self.full]))
    counts = property(lambda self: np.array([[len(x)] for x in self.full]))
    by_ranks = property(lambda self: {len(self.full), self.size})  # what a mean of ranks may have been divided by
    own = property(lambda self: self.x if len(self.x) else np.zeros((1, FEATURES)))

    def by(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """The output by another mean and variance."""
        return (self.x - mean) / np.sqrt(variance + self.norm.eps) * self.norm.weight + self.norm.bias

    def by_means_of_ranks(self, ranks: int) -> list[np.ndarray]:
        mean, squares = self.means.sum(0) / ranks, np.sum([np.square(x).mean(0) for x in self.full], axis=0) / ranks
        return [self.by(mean, squares - mean**2), self.by(mean, self.variances.sum(0) / ranks)]

    # Of gradients.

    along, across = (
        property(lambda self: self.norm.whole(self.norm.of_bias)),
        property(lambda self: self.norm.whole(self.norm.of_weight)),
    )
    own_along, own_across = (
        property(lambda self: self.norm.of_bias(self.rank)),
        property(lambda self: self.norm.of_weight(self.rank)),
    )
    count = property(lambda self: max(len(self.x), 1))

    def x_is(self, along: Any, across: Any) -> bool:
        """Whether it is the gradient of x, if these came through mean and variance."""
        return self.of == "x" and self.near(self.norm.through(self.rank, along, across))

    def part_is(self, *values: np.ndarray) -> bool:
        return self.of in ("weight", "bias") and self.near(*values)

    whole = property(lambda self: self.across if self.of == "weight" else self.along)
    other = property(lambda self: self.own_along if self.of == "weight" else self.own_across)

    # What sentences show.

    what = property(
        lambda self: (
            f"y of {self.batches} on rank {self.rank}"
            if self.of == "y"
            else f"the gradient of {self.of} for {self.batches} on rank {self.rank}"
        )
    )
    batches = property(lambda self: self.case.asked(self.size))
    kind = property(lambda self: str(self.case.dtype)[6:])
    asked, found = property(lambda self: self.difference[0]), property(lambda self: self.difference[1])
    hint_or_empty = property(lambda self: self.case.why or EMPTY)


@dataclass(frozen=True)
class Exchange:
    """What ranks exchanged in `what`. most: the collective calls that it needs; names: those that it made."""

    what: str
    most: int
    messages: int
    names: Sequence[str]
    rank = None

    calls = property(lambda self: counted(self.most, "collective call"))
    made = property(lambda self: f"{len(self.names)}: {', '.join(self.names)}")


@dataclass(frozen=True)
class Growth:
    """How many times as long as for few examples ranks exchange for many."""

    times: float
    rank = None


def _judge_forward(case: Batches, seen: Sequence[Any]) -> Finding | None:
    size, norm = len(seen), case.norm(len(seen))
    everyone = [Facts(r, "y", case, size, y, norm.output(r), known) for r, (y, known) in enumerate(seen)]
    return judge(OUTPUTS, *reversed(everyone))  # on rank 0, its own sums look like those of all


def _judge_backward(case: Batches, seen: Sequence[Any]) -> Finding | None:
    size, wanted = len(seen), case.norm(len(seen)).gradients(case.layers)
    everyone = [
        Facts(rank, of, case, size, got if isinstance(got, str) else got[i], wanted[rank][i])
        for i, of in enumerate(("x", "weight", "bias"))
        for rank, got in enumerate(seen)
    ]
    return judge(GRADIENTS, *everyone)


# -- what is said --

COUNT_ALL = (
    "in which a rank with few examples counts as much as one with many. Sum values and counts over all ranks, and "
    "divide once."
)
OTHERS = "sum what they need over all ranks."
LOSS = "by the number of ranks. L is the sum of all ranks' losses: each x has its gradient as it is."

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
    "not finite",
    lambda f: not np.isfinite(f.got).all(),
    "That is 0 / 0, or a root of less than 0. {hint_or_empty}",
)
LAST_WHYS = [  # after values that misconceptions give to the last digit, which some features take for rounding
    Rule(
        "rounded",
        lambda f: f.rounded,
        "That is right but for rounding to {rounded}. Sums are made, and travel, in float64: x.double() first, and "
        "back to x's dtype at the end.",
    ),
    Rule("right before", lambda f: f.case.why, "{case.why}"),
    Rule("else", always, "Mean and variance are over the examples of all ranks."),
]
WHYS_OUTPUT = [
    NOT_FINITE,
    Rule(
        "own statistics",
        lambda f: f.near(f.by(f.own.mean(0), f.own.var(0))),
        f"These are mean and variance of this rank's own batch: {OTHERS}",
    ),
    Rule(
        "rank 0's statistics",
        lambda f: len(f.norm.xs[0]) > 0 and f.near(f.by(f.norm.xs[0].mean(0), f.norm.xs[0].var(0))),
        f"These are mean and variance of rank 0's batch: {OTHERS} (The sum of tuples, or of lists, is one after the "
        "other; arrays and tensors are added element by element.)",
    ),
    Rule(
        "mean of variances",
        lambda f: f.near(f.by(f.norm.mean, (f.counts * f.variances).sum(0) / f.norm.total)),
        "The variance is the mean of the ranks' variances. How far the ranks' means lie apart belongs to it, too: take "
        "it from the sum of squares over all ranks, or from deviations from the mean of all.",
    ),
    Rule(
        "mean of means",
        lambda f: f.near(*[y for ranks in f.by_ranks for y in f.by_means_of_ranks(ranks)]),
        f"That takes the mean of the ranks' means, {COUNT_ALL}",
    ),
    Rule(
        "mean of means, right variance",
        lambda f: f.near(*[f.by(f.means.sum(0) / ranks, f.norm.variance) for ranks in f.by_ranks]),
        f"The mean is that of the ranks' means, {COUNT_ALL}",
    ),
    Rule(
        "own variance",
        lambda f: f.near(f.by(f.norm.mean, f.own.var(0))),
        "The mean is of all ranks, the variance of this one alone.",
    ),
    Rule(
        "own mean",
        lambda f: f.near(f.by(f.own.mean(0), f.norm.variance)),
        "The variance is of all ranks, the mean of this one alone.",
    ),
    Rule(
        "unbiased variance",
        lambda f: f.near(f.by(f.norm.mean, f.norm.variance * f.norm.total / (f.norm.total - 1))),
        "That is the unbiased variance, divided by the number of examples minus one. Batch norm normalises by the "
        "biased one, divided by the number of examples.",
    ),
    Rule(
        "eps outside the root",
        lambda f: f.near((f.x - f.norm.mean) / (np.sqrt(f.norm.variance) + f.norm.eps) * f.norm.weight + f.norm.bias),
        "eps is added to the deviation there. It belongs under the root: sqrt(variance + eps).",
    ),
    Rule(
        "no eps",
        lambda f: f.near(f.by(f.norm.mean, f.norm.variance - f.norm.eps)),
        "eps is missing under the root: sqrt(variance + eps).",
    ),
    Rule(
        "another eps",
        lambda f: f.near(*[f.by(f.norm.mean, f.norm.variance - f.norm.eps + 10.0**-k) for k in range(3, 13)]),
        EPS,
    ),
    Rule(
        "divided by the variance",
        lambda f: f.near(f.norm.normal(f.rank) / f.norm.deviation * f.norm.weight + f.norm.bias),
        "That divides by the variance. The deviation is its root.",
    ),
    Rule(
        "no weight and no bias",
        lambda f: f.near(f.norm.normal(f.rank)),
        "weight and bias are missing: y = normalised x * weight + bias.",
    ),
    Rule(
        "no bias",
        lambda f: f.near(f.norm.normal(f.rank) * f.norm.weight),
        "bias is missing: y = normalised x * weight + bias.",
    ),
    Rule(
        "no weight",
        lambda f: f.near(f.norm.normal(f.rank) + f.norm.bias),
        "weight is missing: y = normalised x * weight + bias.",
    ),
    Rule("no mean", lambda f: f.near(f.by(np.zeros(FEATURES), f.norm.variance)), "The mean is not subtracted."),
    Rule(
        "mean of squares",
        lambda f: f.near(f.by(f.norm.mean, f.norm.variance + f.norm.mean**2)),
        "The variance is that of the mean of squares, from which the mean's square was not subtracted.",
    ),
    *LAST_WHYS,
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
        lambda f: not f.differentiable,
        "{what} to depend on x",
        "a tensor that autograd knows nothing of",
        "Its gradient is asked for next. What is computed in an autograd.Function's forward has the gradient of "
        "backward.",
    ),
    Test("value", lambda f: f.difference, "{asked}", "{found}", WHYS_OUTPUT),
]
WHYS_GRADIENT = [
    NOT_FINITE,
    Rule(
        "constants",
        lambda f: f.x_is(0.0, 0.0),
        "Mean and variance are treated as constants there. Each x is in both, and so in every example's y: two more "
        "terms, with sums over all ranks.",
    ),
    Rule(
        "own sums",
        lambda f: f.x_is(f.own_along / f.count, f.own_across / f.count),
        "The two sums are over this rank's examples alone. Mean and variance are of all ranks: so are the sums.",
    ),
    Rule(
        "own sums over all examples",
        lambda f: f.x_is(f.own_along / f.norm.total, f.own_across / f.norm.total),
        "The two sums are over this rank's examples alone, divided by the number of all. They need the examples of all "
        "ranks: the second collective call.",
    ),
    Rule(
        "not through the variance",
        lambda f: f.x_is(f.along / f.norm.total, 0.0),
        "The term that comes through the variance is missing.",
    ),
    Rule(
        "not through the mean",
        lambda f: f.x_is(0.0, f.across / f.norm.total),
        "The term that comes through the mean is missing.",
    ),
    Rule(
        "sums over own count",
        lambda f: f.x_is(f.along / f.count, f.across / f.count),
        "The two sums are divided by this rank's number of examples: divide by that of all ranks.",
    ),
    Rule(
        "sums not divided",
        lambda f: f.x_is(f.along, f.across),
        "The two sums are not divided by the number of examples.",
    ),
    Rule(
        "sums over ranks",
        lambda f: f.x_is(f.along / f.size, f.across / f.size),
        "The two sums are divided by the number of ranks: divide by the number of all examples.",
    ),
    Rule(
        "sums over ranks, too",
        lambda f: f.x_is(f.along / f.norm.total / f.size, f.across / f.norm.total / f.size),
        "The two sums are divided by the number of ranks, too: they are sums over all ranks, divided by the number of "
        "all examples alone.",
    ),
    Rule("over ranks", lambda f: f.of == "x" and f.near(f.want / f.size), f"It is divided {LOSS}"),
    Rule("times ranks", lambda f: f.of == "x" and f.near(f.want * f.size), f"It is multiplied {LOSS}"),
    Rule(
        "no weight",
        lambda f: f.of == "x" and f.near(f.want / f.norm.weight),
        "weight is missing in the gradient of x.",
    ),
    Rule(
        "no deviation",
        lambda f: f.of == "x" and f.near(f.want * f.norm.deviation),
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
        lambda f: f.of == "weight" and f.near((f.dy * f.norm.output(f.rank)).sum(0)),
        "That is the sum of dy * y. weight multiplies the normalised x, before weight and bias.",
    ),
    Rule(
        "dy * x",
        lambda f: f.of == "weight" and f.near((f.dy * f.x).sum(0)),
        "That is the sum of dy * x. weight multiplies the normalised x.",
    ),
    Rule(
        "over examples",
        lambda f: f.part_is(f.want / f.count, f.want / f.norm.total),
        "It is divided by the number of examples. y depends on it in each of them: a sum.",
    ),
    *LAST_WHYS,
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
            Rule(
                "one after the other",
                always,
                "What is to be summed can travel together: torch.cat or torch.stack make one array of it.",
            ),
        ],
    ),
]
GROWTH = [
    Test(
        "grows",
        lambda f: f.times > 1.5,
        "as much to be sent for 4000 examples on each rank as for 4: some sums for each feature",
        "messages that take {times:.1f} times the time",
        "Sums over this rank's examples first, then over ranks. The examples themselves need not travel.",
    )
]
