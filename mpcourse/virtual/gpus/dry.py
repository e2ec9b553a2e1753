"""Tensors without data: shapes of results that torch finds slowly, and what replaces values.

On meta tensors torch decomposes batch norm into twenty operations in Python, 4 ms a layer, and arange imports the
compiler, 2 s. Here only shapes are made.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch

from mpcourse.virtual.gpus import dropout, kept
from mpcourse.virtual.gpus.box import Box
from mpcourse.virtual.gpus.device_checks import no_data
from mpcourse.virtual.gpus.layout import channels_last
from mpcourse.virtual.gpus.shape_cache import shapes_of
from mpcourse.virtual.gpus.source_line import asking_line
from mpcourse.virtual.line import Line, location

Tensor = torch.Tensor


def _batch_norm(x: Tensor, weight: Tensor | None, bias: Any, mean: Any, var: Any, training: bool, *rest: Any) -> tuple:
    channels = x.shape[1] if training else 0
    statistics = torch.promote_types(x.dtype, torch.float32)  # as on CUDA, which computes them in it
    return torch.empty_like(x), x.new_empty(channels, dtype=statistics), x.new_empty(channels, dtype=statistics)


def _batch_norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor | None, mean: Any, var: Any, save_mean: Any, save_var: Any, train: bool,
    eps: float, mask: list[bool],
) -> tuple:  # fmt: skip
    of_weight = (x if weight is None else weight).new_empty
    channels = x.shape[1]
    return (
        torch.empty_like(x) if mask[0] else None,
        of_weight(channels) if mask[1] else None,
        of_weight(channels) if mask[2] else None,
    )


def _convolution(x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    """Return the shape as torch does, but with channels last, which torch forgets."""
    out = torch.ops.aten.convolution.default(x, weight, *rest)
    last = channels_last(x, weight)
    return out if last is None else out.contiguous(memory_format=last)


def _arange(start: Any, end: Any = None, step: Any = 1, *, dtype: torch.dtype | None = None, **ignored: Any) -> Tensor:
    if end is None:
        start, end = 0, start
    if step == 0 or (end - start) / step < 0:
        torch.arange(start, end, step)  # raises the error
    if dtype is None:
        whole = all(isinstance(value, int) for value in (start, end, step))
        dtype = torch.int64 if whole else torch.get_default_dtype()
    return torch.empty(math.ceil((end - start) / step), dtype=dtype, device="meta")


def _pack(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    given = lengths.tolist()
    if min(given) < 1:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' <= 0")
    sizes = [sum(length > step for length in given) for step in range(given[0])]
    return x.new_empty(sum(given), *x.shape[2:]), torch.tensor(sizes, device="cpu")


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing, for an operation in place that has no shape to make."""


SHAPES: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.convolution.default: _convolution,
    torch.ops.aten.native_batch_norm.default: _batch_norm,
    torch.ops.aten.native_batch_norm_backward.default: _batch_norm_backward,
    torch.ops.aten._ctc_loss_backward.default: lambda grad, log_probs, *rest: torch.empty_like(log_probs),
    torch.ops.aten._fused_sgd_.default: _nothing,
    torch.ops.aten._fused_sgd_.tensor_lr: _nothing,
    torch.ops.aten._fused_adagrad_.default: _nothing,
    torch.ops.aten._fused_adagrad_.tensor_lr: _nothing,
    torch.ops.aten.arange.default: _arange,
    torch.ops.aten.arange.start: _arange,
    torch.ops.aten.arange.start_step: _arange,
    torch.ops.aten._pack_padded_sequence.default: _pack,
    **dropout.SHAPES,
    **kept.SHAPES,
}
kept.VALUES.update(dropout.VALUES)


def shapes_or_refusal(func: Any, args: tuple, kwargs: dict, on_device: bool) -> Any:
    """Return the results' shapes for an operation on a device, and its results for one on the CPU.

    Raises RuntimeError, in one line of ours, where the shapes depend on values.
    """
    try:
        return shapes_of(SHAPES.get(func, func), func, args, kwargs) if on_device else func(*args, **kwargs)
    except RuntimeError as error:  # NotImplementedError among them
        if isinstance(error, NotImplementedError) or "meta tensor" in str(error):
            raise no_data(f"{func._overloadpacket.__name__}()") from None
        raise


def stand_in(box: Box, what: str, line: Line | None) -> None:
    """Warn, once in a box, that zeros replace values."""
    if not box.stands_in:
        box.stands_in = True
        warnings.warn(
            f"a dry box holds no data: {what} at {location(line)} is 0 instead of its value, and so from here on",
            UserWarning,
            stacklevel=2,
        )


def number(box: Box, tensor: Tensor) -> float | complex:
    """Return what `item()` gives for a tensor without data: 0.0, with a warning, so that a loop may log its loss.

    Raises RuntimeError for integers and booleans, because a program's flow depends on them.
    """
    if box.stand_in is not None:  # the caller has set the value
        return box.stand_in
    block = box.block_of(tensor) if box.assumes else None
    if block is not None and block.allocation.name in ("all", "any"):
        return block.allocation.name == "all"
    if not (tensor.is_floating_point() or tensor.is_complex()):
        raise no_data("item()")
    stand_in(box, "item()", asking_line()[0])
    return 0j if tensor.is_complex() else 0.0


def without_data(args: tuple, inputs: list[Tensor]) -> tuple:
    """Return the arguments without data on the CPU, if some of the CPU's tensors came from a device and hold none."""
    if len({t.is_meta for t in inputs if t.dim()}) < 2:
        return args
    return _emptied(args, lambda t: t.dim() > 0)


def without_numbers(args: tuple) -> tuple:
    """Return the arguments without data in the CPU's numbers among them, as torch has it for meta tensors."""
    return _emptied(args, lambda t: t.dim() == 0)


def _emptied(value: Any, which: Callable[[Tensor], bool]) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to("meta") if which(value) and not value.is_meta else value
    return type(value)(_emptied(v, which) for v in value) if type(value) in (list, tuple) else value
