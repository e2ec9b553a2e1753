"""What e09_noise_scale is asked: both unknowns from two batch sizes, averaged each alone, then divided."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.explain import explanation, gives, probed
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, short

NAME = "noise_scale"


@dataclass(frozen=True)
class Way:
    """How it may be computed; as it stands, the right way.

    small_square, big_square: of a step's rows (ranks, parameters). small, big: from examples and ranks.
    gradient, trace: |G|^2 and S, from both squares and both sizes. combine: the result, from those of every step.
    """

    small_square: Callable[[torch.Tensor], float] = lambda rows: _square(rows).mean().item()
    big_square: Callable[[torch.Tensor], float] = lambda rows: _square(rows.mean(0)).item()
    small: Callable[[int, int], float] = lambda examples, ranks: examples
    big: Callable[[int, int], float] = lambda examples, ranks: examples * ranks
    gradient: Callable[[float, float, float, float], float] = lambda s, b, small, big: (
        (big * b - small * s) / (big - small)
    )
    trace: Callable[[float, float, float, float], float] = lambda s, b, small, big: (s - b) / (1 / small - 1 / big)
    combine: Callable[[Sequence[float], Sequence[float]], float] = lambda gs, ts: (
        sum(ts) / sum(gs) if sum(gs) > 0 else math.inf
    )

    def __call__(self, gradients: Sequence[torch.Tensor], examples: int) -> float:
        """The noise scale that comes of it."""
        ranks = gradients[0].shape[0]
        small, big = self.small(examples, ranks), self.big(examples, ranks)
        squares = [(self.small_square(rows), self.big_square(rows)) for rows in gradients]
        return self.combine(
            [self.gradient(s, b, small, big) for s, b in squares], [self.trace(s, b, small, big) for s, b in squares]
        )


def _square(rows: torch.Tensor) -> torch.Tensor:
    return rows.square().sum(-1)


RIGHT = Way()


def _rows(*steps: list[list[float]]) -> list[torch.Tensor]:
    return [torch.tensor(rows, dtype=torch.float64) for rows in steps]


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Every rank may call this; ranks do not talk."""
    draw = drawing()
    # By hand: squares 9 and 5, |mean|^2 = 6.25, so |G|^2 = 5.5, and for 2 examples S = 3. The last step: 0.25 and 4.
    first, second = [[3.0, 0.0], [2.0, 1.0]], [[1.0, 1.5], [1.0, -0.5]]
    cases = [
        (_rows(first), 2),
        (_rows(first), 8),
        (_rows(first, second), 2),
        (_rows([[2.0, 1.0], [1.0, 1.0], [3.0, 1.0]], [[2.0, -1.0], [1.0, 0.0], [1.0, 1.0]]), 5),
    ]
    for ranks, parameters, steps, examples in ((2, 3, 5, 16), (4, 7, 3, 32), (8, 50, 10, 1), (3, 1, 4, 100)):
        generator = torch.Generator().manual_seed(draw.getrandbits(60))
        rows = torch.randn(steps, ranks, parameters, generator=generator, dtype=torch.float64) + 2
        cases.append((list(rows), examples))
    cases += [
        (_rows([[1.0, 2.0], [1.0, 2.0]]), 4),  # no noise: 0
        (_rows([[2.0, 0.0], [-1.0, 1.0]], [[2.0, 0.0], [2.0, 1.0]]), 4),  # |G|^2 of the first step is negative
        (_rows([[1.0, 0.0], [-1.0, 0.0]]), 4),  # |G|^2 is negative: infinite
        (_rows([[1.0, 0.0], [0.0, 1.0]]), 4),  # |G|^2 is 0
    ]
    one_by_one(answer, [functools.partial(_one, gradients=rows, examples=examples) for rows, examples in cases])


def _number(answer: Answer, gradients: Sequence[torch.Tensor], examples: int) -> float:
    given = [rows.clone() for rows in gradients]
    return float(answer.call(NAME, given, examples, changes=(given,)))


def _one(answer: Answer, gradients: Sequence[torch.Tensor], examples: int) -> None:
    want = RIGHT(gradients, examples)
    steps, (ranks, parameters) = len(gradients), gradients[0].shape
    inputs = f"{counted(steps, 'step')} of {ranks} ranks with {counted(examples, 'example')} each"
    if steps * ranks * parameters <= 8:
        inputs += f", gradients {[rows.tolist() for rows in gradients]}"
    asked = f"{want:.9g} for {inputs}"
    given = [rows.clone() for rows in gradients]
    try:
        got = answer.call(NAME, given, examples, changes=(given,))  # which are looked at below
    except ZeroDivisionError as error:
        why = "Where the mean of |G|^2 is 0 there is nothing to divide by: return math.inf where it is not above 0."
        if math.isfinite(want):
            why = "Which number is 0 there? big is examples * ranks, small is examples: they differ by more than 1."
        raise Wrong(asked, f"ZeroDivisionError: {error}", why) from None
    if len(given) != steps or any(not torch.equal(a, b) for a, b in zip(given, gradients, strict=True)):
        why = "The gradients still belong to the caller: rows.square() makes a new tensor, rows.square_() does not."
        raise Wrong("gradients that stay as they are", "gradients that were changed", why)
    if isinstance(got, torch.Tensor) and got.numel() == 1:
        raise Wrong(asked, short(got), "A float is asked: .item() makes one of a tensor with one number.")
    if isinstance(got, bool) or not isinstance(got, float | int):
        why = "One float is asked, for all steps together."
        if got is None:
            why = "Nothing came back: is the quotient returned?"
        elif isinstance(got, list | tuple | torch.Tensor):
            why += " Average |G|^2 over steps, and S over steps, then divide once."
        raise Wrong(asked, short(got), why)
    if _near(got, want):
        return
    raise Wrong(asked, f"{got:.9g}", _why(answer, gradients, examples, got))


def _near(got: float, want: float) -> bool:
    return got == want or math.isclose(got, want, rel_tol=1e-8, abs_tol=1e-12)


def _why(answer: Answer, gradients: Sequence[torch.Tensor], examples: int, got: float) -> str:
    """The misconception that explains this number, and those for three other inputs."""
    seen = [((gradients, examples), got), *probed(answer, _number, _probes())]
    if why := explanation(WAYS, seen, gives(_near)):
        return why
    want = RIGHT(gradients, examples)
    if math.isinf(want):
        return "The mean of |G|^2 is not above 0 there: the gradient is lost in the noise, and the answer is math.inf."
    if math.isnan(got):
        return "NaN is 0 / 0: is something divided before it is averaged?"
    if len(gradients) > 1 and all(_near(g, RIGHT(rows, n)) for (rows, n), g in seen if len(rows) == 1):
        return "One step alone is right; several are not. Average |G|^2 over all steps, and S likewise, then divide."
    if got < 0:
        return "A noise scale is not negative here: look at the signs. The small batch has the larger square."
    return "Look at one step with two ranks by hand: small_square, big_square, |G|^2 and S, in this order."


@functools.cache
def _probes() -> list[tuple[list[torch.Tensor], int]]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((1, 2, 4, 3), (4, 3, 5, 7), (3, 5, 2, 1))  # steps, ranks, parameters, examples
    return [
        (list(torch.randn(*shape, generator=generator, dtype=torch.float64) + 1.5), examples)
        for *shape, examples in shapes
    ]


def _quotient(gradient: float, trace: float) -> float:
    return trace / gradient if gradient > 0 else math.inf


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
    "big_square is |g|^2 of the mean gradient. That is of the sum of all ranks' gradients.": (
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
