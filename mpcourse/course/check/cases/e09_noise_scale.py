"""What e09_noise_scale is asked: both unknowns from two batch sizes, averaged each alone, then divided."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.calls import ROUNDED, Called, is_float, one_by_one, programs, returned
from mpcourse.course.check.rules import Test, always, demand
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage

NAME = "noise_scale"
Steps = Sequence[torch.Tensor]  # of each step the ranks' gradients, of shape (ranks, parameters)

# -- inputs --


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    draw = drawing()
    # By hand: squares 9 and 5, |mean|^2 = 6.25, so |G|^2 = 5.5, and for 2 examples S = 3. The last step: 0.25 and 4.
    first, second = [[3.0, 0.0], [2.0, 1.0]], [[1.0, 1.5], [1.0, -0.5]]
    cases = [
        (_steps(first), 2),
        (_steps(first), 8),
        (_steps(first, second), 2),
        (_steps([[2.0, 1.0], [1.0, 1.0], [3.0, 1.0]], [[2.0, -1.0], [1.0, 0.0], [1.0, 1.0]]), 5),
    ]
    for steps, ranks, parameters, examples in ((5, 2, 3, 16), (3, 4, 7, 32), (10, 8, 50, 1), (4, 3, 1, 100)):
        cases.append((_drawn(steps, ranks, parameters, draw.getrandbits(60)), examples))
    cases += [
        (_steps([[1.0, 2.0], [1.0, 2.0]]), 4),  # no noise: 0
        (_steps([[2.0, 0.0], [-1.0, 1.0]], [[2.0, 0.0], [2.0, 1.0]]), 4),  # |G|^2 of the first step is negative
        (_steps([[1.0, 0.0], [-1.0, 0.0]]), 4),  # |G|^2 is negative: infinite
        (_steps([[1.0, 0.0], [0.0, 1.0]]), 4),  # |G|^2 is 0
    ]
    one_by_one(answer, [functools.partial(_one, steps=steps, examples=examples) for steps, examples in cases])


def _steps(*steps: list[list[float]]) -> list[torch.Tensor]:
    return [torch.tensor(rows, dtype=torch.float64) for rows in steps]


def _drawn(steps: int, ranks: int, parameters: int, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn(steps, ranks, parameters, generator=generator, dtype=torch.float64) + 2)


PROBES = [(_drawn(1, 2, 4, 3), 3), (_drawn(4, 3, 5, 4), 7), (_drawn(3, 5, 2, 5), 1)]


def _one(answer: Answer, steps: Steps, examples: int) -> None:
    left = [rows.clone() for rows in steps]
    got = returned(lambda: answer.call(NAME, left, examples, changes=(left,)), ZeroDivisionError)
    demand(TESTS, Facts(answer, (steps, examples), got, left))


# -- facts --


Part = Callable[..., float]


@dataclass(frozen=True)
class Way:
    """How it may be computed; by default the right way.

    small_square, big_square: of a step's rows (ranks, parameters). small, big: from examples and ranks.
    gradient, trace: |G|^2 and S, from both squares and both sizes. combine: the result, from those of every step.
    """

    small_square: Part = lambda rows: _square(rows).mean().item()
    big_square: Part = lambda rows: _square(rows.mean(0)).item()
    small: Part = lambda examples, ranks: examples
    big: Part = lambda examples, ranks: examples * ranks
    gradient: Part = lambda s, b, small, big: (big * b - small * s) / (big - small)
    trace: Part = lambda s, b, small, big: (s - b) / (1 / small - 1 / big)
    combine: Part = lambda gs, ts: _quotient(sum(gs), sum(ts))

    def __call__(self, steps: Steps, examples: int) -> float:
        """Compute the noise scale in this way."""
        ranks = steps[0].shape[0]
        sizes = self.small(examples, ranks), self.big(examples, ranks)
        squares = [(self.small_square(rows), self.big_square(rows)) for rows in steps]
        return self.combine(
            [self.gradient(*pair, *sizes) for pair in squares], [self.trace(*pair, *sizes) for pair in squares]
        )


def _square(rows: torch.Tensor) -> torch.Tensor:
    return rows.square().sum(-1)


def _quotient(gradient: float, trace: float) -> float:
    return trace / gradient if gradient > 0 else math.inf


@dataclass(frozen=True)
class Facts(Called):
    """The noise scale for `given`, which is (steps, examples). left: the gradients after the call."""

    left: list[torch.Tensor]

    right = Way()
    call = staticmethod(lambda answer, steps, n: float(answer.call(NAME, [rows.clone() for rows in steps], n)))
    probes = PROBES
    steps = property(lambda self: self.given[0])
    changed = property(
        lambda self: len(self.left) != len(self.steps) or not all(map(torch.equal, self.left, self.steps))
    )
    # Whether each single step that was seen is right.
    steps_are_right = property(
        lambda self: all(self.same(got, self.right(*given)) for given, got in self.seen if len(given[0]) == 1)
    )

    @staticmethod
    def same(got: float, value: float) -> bool:
        return got == value or math.isclose(got, value, rel_tol=1e-8, abs_tol=1e-12)

    # What sentences show.

    @property
    def inputs(self) -> str:
        n, (ranks, parameters) = len(self.steps), self.steps[0].shape
        shown = f", gradients {[rows.tolist() for rows in self.steps]}" if n * ranks * parameters <= 8 else ""
        return f"{counted(n, 'step')} of {ranks} ranks with {counted(self.given[1], 'example')} each{shown}"


# -- what is said --

WAYS: dict[str, Way] = {
    "That is the mean of each step's own quotient. A quotient of noisy numbers is wrong on average, too: average "
    "|G|^2 over all steps, and S, then divide.": Way(
        combine=lambda gs, ts: sum(t / g for g, t in zip(gs, ts, strict=True)) / len(gs)
    ),
    "That is the last step's alone. All steps count: average |G|^2 and S over them.": Way(
        combine=lambda gs, ts: _quotient(gs[-1], ts[-1])
    ),
    "That is the first step's alone. All steps count: does a return stand inside of the loop?": Way(
        combine=lambda gs, ts: _quotient(gs[0], ts[0])
    ),
    "One of the two is a sum over steps, the other a mean: average both, or sum both.": Way(
        combine=lambda gs, ts: len(gs) * _quotient(sum(gs), sum(ts))
    ),
    "S is a mean over steps, |G|^2 a sum: average both, or sum both.": Way(
        combine=lambda gs, ts: _quotient(sum(gs), sum(ts)) / len(gs)
    ),
    "That is upside down: the noise scale is S / |G|^2.": Way(combine=lambda gs, ts: sum(gs) / sum(ts)),
    "That is S alone. Divide it by |G|^2.": Way(combine=lambda gs, ts: sum(ts) / len(ts)),
    "That takes |g|^2 of all ranks' mean for |G|^2. It is too large, by S / big: use the first formula.": (
        Way(gradient=lambda s, b, small, big: b)
    ),
    "That takes |g|^2 of a rank's gradient for |G|^2. It is mostly noise: use the first formula.": (
        Way(gradient=lambda s, b, small, big: s)
    ),
    "small_square - big_square is not S yet: divide it by (1 / small - 1 / big).": (
        Way(trace=lambda s, b, small, big: s - b)
    ),
    "S has the wrong sign: the small batch has the larger square and the larger 1 / size: (small_square - big_square) "
    "/ (1 / small - 1 / big).": Way(trace=lambda s, b, small, big: (b - s) / (1 / small - 1 / big)),
    "S is divided by (1 / small - 1 / big), and not multiplied by it.": (
        Way(trace=lambda s, b, small, big: (s - b) * (1 / small - 1 / big))
    ),
    "S is divided by the difference of 1 / small and 1 / big, not of the sizes themselves.": (
        Way(trace=lambda s, b, small, big: (s - b) / (big - small))
    ),
    "In |G|^2 each square is multiplied by its own size: big * big_square - small * small_square.": (
        Way(gradient=lambda s, b, small, big: (big * s - small * b) / (big - small))
    ),
    "examples is what each rank has: small is examples, big is examples * ranks. That takes examples for all of them "
    "together.": Way(small=lambda n, ranks: n / ranks, big=lambda n, ranks: n),
    "big is the number of examples in all ranks' batches together, examples * ranks, and not the number of ranks.": (
        Way(small=lambda n, ranks: 1, big=lambda n, ranks: ranks)
    ),
    "That takes 1 example for small and examples for big. A rank's gradient is the mean of its examples already: small "
    "is examples, big is examples * ranks.": Way(small=lambda n, ranks: 1, big=lambda n, ranks: n),
    "big is examples * ranks: a product, not a sum.": Way(big=lambda n, ranks: n + ranks),
    "The length itself is not what the formulas take: |g|^2 is the sum of squares, without the root.": Way(
        small_square=lambda rows: _square(rows).sqrt().mean().item(), big_square=lambda rows: rows.mean(0).norm().item()
    ),
    "small_square is the mean over ranks of each one's |g|^2. That is the sum over ranks.": (
        Way(small_square=lambda rows: _square(rows).sum().item())
    ),
    "small_square is the mean over all ranks. That is rank 0's alone, which is right on average, and noisier.": (
        Way(small_square=lambda rows: _square(rows[0]).item())
    ),
    "big_square is |g|^2 of the mean gradient. That is the one of the sum of all ranks' gradients.": (
        Way(big_square=lambda rows: _square(rows.sum(0)).item())
    ),
    "Both squares are the same there, so that S comes out as 0. small_square: square first, then average over ranks. "
    "big_square: average over ranks first, then square.": Way(small_square=lambda rows: _square(rows.mean(0)).item()),
    "The mean over parameters in one square, their sum in the other: |g|^2 is a sum in both.": (
        Way(small_square=lambda rows: rows.square().mean().item())
    ),
    "The sum over parameters in one square, their mean in the other: |g|^2 is a sum in both.": (
        Way(big_square=lambda rows: rows.mean(0).square().mean().item())
    ),
    "That is the square of the sum of all numbers. |g|^2 is the sum of their squares: square first.": Way(
        small_square=lambda rows: rows.sum(1).square().mean().item(),
        big_square=lambda rows: rows.mean(0).sum().square().item(),
    ),
}

WHYS = {
    **ROUNDED,
    **programs(WAYS),
    "The mean of |G|^2 is not above 0 there: the gradient is lost in the noise, and the answer is math.inf.": (
        lambda f: math.isinf(f.want)
    ),
    "NaN is 0 / 0: is something divided before it is averaged?": lambda f: math.isnan(f.got),
    "One step alone is right; several are not. Average |G|^2 over all steps, and S likewise, then divide.": lambda f: (
        len(f.steps) > 1 and f.steps_are_right
    ),
    "A noise scale is not negative here: look at the signs. The small batch has the larger square.": lambda f: (
        f.got < 0
    ),
    "Look at one step with two ranks by hand: small_square, big_square, |G|^2 and S, in this order.": always,
}
ONE_FLOAT = "One float is asked, for all steps together."
WHYS_TYPE = {
    "Which number is 0 there? big is examples * ranks, small is examples: they differ by more than 1.": lambda f: (
        f.failed and math.isfinite(f.want)
    ),
    "Where the mean of |G|^2 is 0 there is nothing to divide by: return math.inf where it is not above 0.": lambda f: (
        f.failed
    ),
    "Nothing came back: is the quotient returned?": lambda f: f.got is None,
    "A float is asked: .item() makes one of a tensor with one number.": lambda f: (
        isinstance(f.got, torch.Tensor) and f.got.numel() == 1
    ),
    f"{ONE_FLOAT} Average |G|^2 over steps, and S over steps, then divide once.": lambda f: isinstance(
        f.got, list | tuple | torch.Tensor
    ),
    ONE_FLOAT: always,
}
ASKED = "{want:.9g} for {inputs}"
TESTS = [
    Test(
        "changed gradients",
        lambda f: f.changed,
        "gradients that stay as they are",
        "gradients that were changed",
        "The gradients still belong to the caller: rows.square() makes a new tensor, rows.square_() does not.",
    ),
    Test("no float", lambda f: not is_float(f.got), ASKED, "{shown}", WHYS_TYPE),
    Test("value", lambda f: not f.same(f.got, f.want), ASKED, "{got:.9g}", WHYS),
]
