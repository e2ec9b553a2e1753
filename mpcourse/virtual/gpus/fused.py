"""Operations that torch's C++ code does by one kernel on CUDA, and by several on a CPU.

RMS norm (aten/src/ATen/native/layer_norm.cpp), the cells of LSTM and GRU (RNN.cpp, which calls cuda/RNN.cu), and
softmax of float16 into float32 (SoftMax.cpp). CUDA's kernel is counted; the values are the CPU's. Group norm is one
kernel on both, but only the CPU's takes channels last (group_norm.cpp).
"""

from collections.abc import Callable
from typing import Any

import torch

from mpcourse.virtual.gpus import autocast
from mpcourse.virtual.gpus.cost import in_parts
from mpcourse.virtual.gpus.counted import counted
from mpcourse.virtual.gpus.device_checks import judged
from mpcourse.virtual.gpus.dispatch import DispatchMode
from mpcourse.virtual.gpus.kernels import KEYS

Tensor = torch.Tensor
aten = torch.ops.aten
_AUTOCAST = torch._C.DispatchKeySet(autocast.KEY)


def _rms_norm(
    mode: DispatchMode, func: Any, x: Tensor, shape: list[int], weight: Tensor | None = None, eps: float | None = None
) -> tuple[Tensor, ...]:
    judged(func, (x, shape, weight, eps), {}, mode.box)

    def plan(x: Tensor, weight: Tensor | None = None) -> tuple[Tensor, ...]:
        with torch._C._ExcludeDispatchKeyGuard(KEYS):  # otherwise it would come here again
            return func(x, shape, weight, eps)

    def compute(x: Tensor, weight: Tensor | None = None) -> tuple[Tensor, ...]:
        return in_parts(func, x, shape, weight, eps)

    return counted(mode, plan, compute, [x] if weight is None else [x, weight], again=compute)


def _cell(cell: str) -> Callable[..., Any]:
    fused = getattr(aten, f"_thnn_fused_{cell}_cell").default

    def run(
        mode: DispatchMode, func: Any, x: Tensor, state: Any, of_input: Tensor, of_state: Tensor, *biases: Tensor | None
    ) -> Any:
        judged(func, (x, state, of_input, of_state, *biases), {}, mode.box)
        states = list(state) if cell == "lstm" else [state]
        given = [x, *states, of_input, of_state, *(b for b in biases if b is not None)]
        if torch.is_autocast_enabled("vgpu"):
            given = autocast.cast(given, autocast.region_dtype())
        n = 1 + len(states)

        def plan(*tensors: Tensor) -> tuple[Tensor, ...]:
            x, states, of_input, of_state, *biases = tensors[0], tensors[1:n], *tensors[n:]
            with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
                gates = torch.matmul(x, of_input.t()), torch.matmul(states[0], of_state.t())
                return fused(*gates, states[-1], *biases)[: len(states)]

        def compute(*tensors: Tensor) -> tuple[Tensor, ...]:
            states = list(tensors[1:n])
            out = in_parts(func, tensors[0], states if cell == "lstm" else states[0], *tensors[n:])
            return out if cell == "lstm" else (out,)

        out = counted(mode, plan, compute, given, again=compute)
        return out if cell == "lstm" else out[0]

    return run


def _softmax(kernel: Any) -> Callable[..., Any]:
    def run(mode: DispatchMode, func: Any, x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
        if dtype is None and torch.is_autocast_enabled("vgpu") and autocast.eligible(x):
            dtype = torch.float32
        if x.dtype is torch.float16 and dtype is torch.float32:
            return kernel(x, dim, True)
        return in_parts(func, x, dim, dtype)

    return run


def _group_norm(mode: DispatchMode, func: Any, *args: Any) -> Tensor:
    """Do group norm: CUDA's kernel takes a contiguous copy, which is kept for backward."""
    if torch.is_autocast_enabled("vgpu"):
        args = tuple(autocast.cast(args, torch.float32))
    x, *rest = args
    return in_parts(func, x.contiguous(), *rest)


KERNELS: dict[str, Callable[..., Any]] = {
    "group_norm": _group_norm,
    "_fused_rms_norm": _rms_norm,
    "lstm_cell": _cell("lstm"),
    "gru_cell": _cell("gru"),
    "softmax.int": _softmax(aten._softmax.default),
    "log_softmax.int": _softmax(aten._log_softmax.default),
}


# -- shapes of what only CUDA has, where torch has none; autograd then takes CUDA's way on tensors without data --


def _rms_norm_shapes(x: Tensor, shape: list[int], weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    statistics = torch.promote_types(x.dtype, torch.float32)
    rows = (*x.shape[: x.dim() - len(shape)], *[1] * len(shape))
    return torch.empty_like(x, memory_format=torch.contiguous_format), x.new_empty(rows, dtype=statistics)


def _rms_norm_gradients(
    grad: Tensor, x: Tensor, shape: list[int], rstd: Tensor, weight: Tensor | None, wanted: list[bool]
) -> tuple[Tensor | None, Tensor | None]:
    plain = torch.contiguous_format
    return (
        torch.empty_like(x, memory_format=plain) if wanted[0] else None,
        torch.empty_like(weight, memory_format=plain) if wanted[1] and weight is not None else None,
    )


def _gru_cell_shapes(
    gates: Tensor, of_state: Tensor, state: Tensor, bias: Tensor | None = None, other: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    plain = torch.contiguous_format
    return torch.empty_like(state, memory_format=plain), state.new_empty(state.shape[0], 5 * state.shape[1])


def _gru_cell_gradients(grad: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    rows, units = grad.shape
    gates = grad.new_empty(rows, 3 * units), grad.new_empty(rows, 3 * units)
    biases = (grad.new_empty(3 * units), grad.new_empty(3 * units)) if has_bias else (None, None)
    return *gates, torch.empty_like(grad, memory_format=torch.contiguous_format), *biases


_library = torch._C._dispatch_library("IMPL", "aten", "")  # Library.impl refuses what it takes to be composite
for _name, _shapes in {
    "_fused_rms_norm": _rms_norm_shapes,
    "_fused_rms_norm_backward": _rms_norm_gradients,
    "_thnn_fused_gru_cell": _gru_cell_shapes,
    "_thnn_fused_gru_cell_backward": _gru_cell_gradients,
    "mish_backward": lambda grad, x: torch.empty_like(grad),
}.items():
    _library.impl(_name, "Meta", _shapes, False)  # type: ignore[call-arg, arg-type]
