"""What the checks of exercises on devices share: where a tensor is, who copied it, and what backward says."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.fx.experimental.symbolic_shapes  # what a backward that is given gradients imports: before the clock starts

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.wrong import Wrong, same, short, to_numpy
from mpcourse.virtual import Box

Tensor = torch.Tensor
SECOND = (
    "The first call of this very object was right: it keeps something from one call to the next (in self, perhaps). "
    "What belongs to one call is made anew in each."
)


def is_on(value: Any, device: str, what: str, why: str) -> None:
    """Raise Wrong unless `value` is a tensor on `device`."""
    if not isinstance(value, Tensor):
        nothing = "Nothing came back: is the result returned?" if value is None else ""
        raise Wrong(f"{what} to be a tensor on {device}", short(value), nothing)
    if str(value.device) != device:
        raise Wrong(f"{what} on {device}", f"a tensor on {value.device}", why)


def equal(got: Tensor, want: Tensor, what: str, why: str, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Raise Wrong at the first element that differs; `want` is on the CPU."""
    same(got.detach().cpu(), want.detach(), what, why, rtol, atol)


def close(got: Tensor | np.ndarray, want: Tensor | np.ndarray) -> bool:
    """Whether two tensors, or arrays, agree but for rounding; to tell which mistake gives a result."""
    if got.shape != want.shape:
        return False
    a, b = to_numpy(got), to_numpy(want)
    # Most that are asked about differ in their first number already, or are equal; allclose takes ten times as long.
    if a.size and abs(a.item(0) - b.item(0)) > 2e-5 + 2e-4 * abs(b.item(0)):
        return False
    return np.array_equal(a, b) or np.allclose(a, b, rtol=1e-4, atol=1e-5)


def lanes(box: Box) -> list[str]:
    """The copies since the last box.reset(), as "vgpu:0 -> vgpu:1"."""
    return [e.lane for e in box.copies]


def copies_text(copies: Sequence[str]) -> str:
    """`2 copies: vgpu:0 -> vgpu:1, vgpu:1 -> vgpu:0`."""
    return counted(len(copies), "copy") + (f": {', '.join(copies)}" if copies else "")


def backward(answer: Answer, result: Tensor, gradient: Tensor, what: str, why: str) -> None:
    """Run backward from `result`. An error that is not raised in the learner's own lines is told as Wrong."""
    if not result.requires_grad:
        raise Wrong(
            f"{what} to depend on what it is computed from",
            "a tensor that autograd knows nothing of",
            "detach, .data, torch.no_grad and new tensors cut the chain of gradients.",
        )
    path, gradient = str(answer.path), gradient.to(result.device)
    try:
        answer.run(result.backward, "backward", gradient, changes=(gradient,))
    except RuntimeError as error:
        trace, inside = error.__traceback__, False
        while trace is not None:
            inside |= trace.tb_frame.f_code.co_filename == path
            trace = trace.tb_next
        if inside:
            raise
        raise Wrong("backward to run", str(error).splitlines()[0], why) from None
