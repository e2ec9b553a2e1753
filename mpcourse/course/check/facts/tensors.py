"""Tensors on devices: where one is, whether its numbers are right, who copied it, and what backward says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.fx.experimental.symbolic_shapes  # what a backward that is given gradients imports: before the clock starts

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import Rule, Test, always, demand, filled
from mpcourse.course.check.wrong import first_difference, short, to_numpy, why_not_finite
from mpcourse.virtual import Box

Tensor = torch.Tensor
Why = str | Sequence[Rule]
SECOND = (
    "The first call of this very object was right: it keeps something from one call to the next (in self, perhaps). "
    "What belongs to one call is made anew in each."
)
UNITS = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


class Result(SimpleNamespace):
    """A tensor of an answer, and the right one, on the CPU. what: how sentences call it. device: where it has to be.

    known: other facts, which rules ask for.
    """

    def __init__(self, got: Any, want: Any, what: str, device: str = "", **known: Any) -> None:
        super().__init__(got=got, want=want, what=what, device=device, **known)

    reshaped = property(lambda self: self.got.shape != self.want.shape)
    squeezed = property(lambda self: len(self.want) == 1 and self.got.shape == self.want.shape[1:])


# -- tests of a Result --


def itself(facts: Any) -> Any:
    """Return the facts, which are a Result."""
    return facts


def placed(why: Why, of: Callable[[Any], Any] = itself) -> list[Test]:
    """Return tests of whether a result is a tensor on its device. of: the Result among facts that hold more."""
    nothing = Rule("None", lambda f: of(f).got is None, "Nothing came back: is the result returned?")
    return [
        Test(
            "no tensor",
            lambda f: not isinstance(of(f).got, Tensor),
            lambda f: filled("{what} to be a tensor on {device}", of(f)),
            lambda f: short(of(f).got),
            [nothing],
        ),
        Test(
            "another device",
            lambda f: str(of(f).got.device) != of(f).device,
            lambda f: filled("{what} on {device}", of(f)),
            lambda f: f"a tensor on {of(f).got.device}",
            why,
        ),
    ]


def equals(
    why: Why,
    computed: bool = False,
    dtype: str = "",
    rtol: float = 0.0,
    atol: float = 0.0,
    of: Callable[[Any], Any] = itself,
) -> list[Test]:
    """Return a test of whether a result has the right numbers, in the right shape and dtype.

    computed: by a network in float32, which rounds; else to the last bit, or within rtol and atol. dtype: why it has
    another one. of: the Result among facts that hold more.
    """
    if computed:
        rtol, atol = 1e-4, 1e-5

    def difference(f: Any) -> tuple[str, ...]:
        one = of(f)
        return first_difference(one.got.detach().cpu(), one.want.detach(), one.what, rtol, atol) or ()

    def shorter(f: Any) -> str:
        return rounded(of(f).got, of(f).want)

    def not_finite(f: Any) -> str:
        return why_not_finite(*difference(f))

    whys = [
        Rule("dtype", lambda f: dtype and of(f).got.dtype != of(f).want.dtype, dtype),
        # A network makes rounding errors larger, so that its results do not tell from which dtype they are.
        Rule("three digits", lambda f: right_to_three_digits(of(f).got, of(f).want), THREE_DIGITS)
        if rtol
        else Rule("shorter dtype", shorter, lambda f: ROUNDED.format(shorter(f))),
        *([Rule("why", always, why)] if why and isinstance(why, str) else why),
        Rule("NaN or infinity", not_finite, not_finite),
    ]
    return [Test("value", difference, lambda f: difference(f)[0], lambda f: difference(f)[1], whys)]


def gradients(why: Why, none: Why, computed: bool = True) -> list[Test]:
    """Return tests of whether a result, which is a gradient, is there and right. none: why there is none."""
    return [Test("None", lambda f: f.got is None, "{what}", "None", none), *equals(why, computed)]


ROUNDED = "Close, but rounded: is a tensor turned into {0} on its way?"
THREE_DIGITS = (
    "That is right to three or four digits. Is a tensor made float16 or bfloat16 on its way? A copy rounds nothing."
)


def rounded(got: Tensor, want: Tensor) -> str:
    """Return the name of the shorter dtype that `got` was rounded to; empty for none."""
    if got.shape != want.shape or got.is_complex():
        return ""
    return shorter_dtype(to_numpy(got), to_numpy(want), UNITS.get(want.dtype, 2.0**-53))


def right_to_three_digits(got: Tensor, want: Tensor) -> bool:
    """Return whether the largest error is what float16 may bring into a network: less than 2 in 1000 of `want`."""
    a, b = to_numpy(got), to_numpy(want)
    if a.shape != b.shape or b.dtype.kind != "f":
        return False
    return bool(np.abs(a - b).max(initial=0.0) <= 2e-3 * np.abs(b).max(initial=0.0))


def is_on(value: Any, device: str, what: str, why: Why) -> None:
    """Raise Wrong unless `value` is a tensor on `device`."""
    demand(placed(why), Result(value, None, what, device))


def equal(got: Tensor, want: Tensor, what: str, why: Why, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Raise Wrong at the first element that differs; `want` is on the CPU."""
    demand(equals(why, rtol=rtol, atol=atol), Result(got, want, what))


# -- facts --


def close(got: Tensor | np.ndarray, want: Tensor | np.ndarray) -> bool:
    """Return whether two tensors, or arrays, agree but for rounding; to tell which mistake gives a result."""
    if got.shape != want.shape:
        return False
    a, b = to_numpy(got), to_numpy(want)
    # Most that are asked about differ in their first number already, or are equal; allclose takes ten times as long.
    if a.size and abs(a.item(0) - b.item(0)) > 2e-5 + 2e-4 * abs(b.item(0)):
        return False
    return np.array_equal(a, b) or np.allclose(a, b, rtol=1e-4, atol=1e-5)


class Lanes(list[str]):
    """Copies, each as "vgpu:0 -> vgpu:1"; as text, `2 copies: vgpu:0 -> vgpu:1, vgpu:1 -> vgpu:0`."""

    def __str__(self) -> str:
        return counted(len(self), "copy") + (f": {', '.join(self)}" if self else "")


def lanes(box: Box) -> Lanes:
    """Return the lanes of the copies since the last box.reset()."""
    return Lanes(e.lane for e in box.copies)


@dataclass(frozen=True)
class Backward:
    """Backward from a result. cut: autograd knows nothing of it. error: what was raised outside the learner's lines."""

    cut: bool
    error: str


def backward(answer: Answer, result: Tensor, gradient: Tensor, what: str, why: Why) -> None:
    """Run backward from `result`, and raise Wrong where it cannot.

    what: how to call the result. why: of an error that is not raised in the learner's own lines.
    """
    cut = Test(
        "cut",
        lambda f: f.cut,
        f"{what} to depend on what it is computed from",
        "a tensor that autograd knows nothing of",
        "detach, .data, torch.no_grad and new tensors cut the chain of gradients.",
    )
    demand(
        [cut, Test("error", lambda f: f.error, "backward to run", "{error}", why)], _backward(answer, result, gradient)
    )


def _backward(answer: Answer, result: Tensor, gradient: Tensor) -> Backward:
    if not result.requires_grad:
        return Backward(True, "")
    gradient = gradient.to(result.device)
    try:
        answer.run(result.backward, "backward", gradient, changes=(gradient,))
    except RuntimeError as error:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == str(answer.path):
                raise
            trace = trace.tb_next
        return Backward(False, str(error).splitlines()[0])
    return Backward(False, "")
