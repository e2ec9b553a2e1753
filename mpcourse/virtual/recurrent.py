"""LSTM, GRU and RNN as cuDNN does them: all layers and steps in one operation, which keeps a reserve for backward.

torch calls cuDNN in aten/src/ATen/native/cudnn/RNN.cpp (`_cudnn_rnn`), and casts what it is given in a region of
autocast in aten/src/ATen/cudnn/AutocastRNN.cpp. cuDNN does not publish how large the reserve is. It was measured for
four layers of 320 units on 25 000 rows (pytorch issue 2895): 736 000 000 bytes of an LSTM, which is 5 numbers for each
unit of each layer, the four gates and the cell, and 1 for each that goes from a layer to the next; 864 000 000 of a
GRU, 6 instead of 5. Of an RNN no measurement is known: 1 is taken.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from mpcourse.virtual import autocast
from mpcourse.virtual.box import TAG
from mpcourse.virtual.cost import in_parts
from mpcourse.virtual.device_checks import judged
from mpcourse.virtual.dispatch import DispatchMode
from mpcourse.virtual.kernels import Whole, whole

Tensor = torch.Tensor
_KEPT = {"lstm": 5, "gru": 6, "rnn_tanh": 1, "rnn_relu": 1}  # numbers in the reserve, for a unit and row of a layer


def _kernel(cell: str, packed: bool) -> Callable[..., Any]:
    def run(mode: DispatchMode, func: Any, *args: Any) -> Any:
        if not torch.backends.cudnn.enabled:
            return in_parts(func, *args)
        x, *rest = args
        batch_sizes = rest.pop(0) if packed else None
        state, weights, _, layers, _, trains, bidirectional, *batch_first = rest
        states = list(state) if cell == "lstm" else [state]
        tensors = [x, *states, *weights]
        judged(func, (x, None, *rest) if packed else args, {}, mode.box)
        if torch.is_autocast_enabled("vgpu"):  # not cached: they are copied into one piece for cuDNN
            tensors = [t.to(autocast.region_dtype()) if autocast.eligible(t) else t for t in tensors]
        dtype, others = tensors[0].dtype, {t.dtype for t in tensors}
        if len(others) > 1:
            raise RuntimeError(
                f"Input and parameter tensors are not the same dtype, found input tensor with {dtype} and parameter "
                f"tensor with {(others - {dtype}).pop()}"
            )

        def compute(given: Sequence[Tensor]) -> tuple[Tensor, ...]:
            x, n = given[0], 1 + len(states)
            state = list(given[1:n]) if cell == "lstm" else given[1]
            lengths = (batch_sizes,) if packed else ()
            return func(x, *lengths, state, list(given[n:]), *rest[2:])

        def shapes(given: Sequence[Tensor]) -> tuple[Tensor, ...]:
            y = by_steps(given[0], given[1].shape[-1] * (1 + bidirectional))
            return (y, *(torch.empty_like(s) for s in given[1 : 1 + len(states)]))

        def by_steps(x: Tensor, width: int) -> Tensor:
            """cuDNN writes one step after the other also where `batch_first` shows them the other way round."""
            if not any(batch_first):
                return x.new_empty(*x.shape[:-1], width)
            return x.new_empty(x.shape[1], x.shape[0], width).transpose(0, 1)

        def gradient(i: int, of: Tensor) -> Tensor:
            return by_steps(of, of.shape[-1]) if i == 0 else torch.empty_like(of)

        rows = math.prod(x.shape[:-1])
        units, passed = states[-1].shape[-1], states[0].shape[-1]  # of the cell, and of what it puts out
        directions = 1 + bidirectional
        numbers = rows * directions * (layers * _KEPT[cell] * units + (layers - 1) * passed)
        call = Whole(
            mode,
            func,
            "_cudnn_rnn",
            compute,
            shapes,
            gradient,
            flops=2 * rows * sum(w.numel() for w in weights if w.dim() == 2),
            reserve=numbers * tensors[0].element_size(),
            trains=trains,
        )
        return whole(call, tensors)

    return run


def _pad_packed(mode: DispatchMode, func: Any, *args: Any) -> tuple[Tensor, Tensor]:
    padded, lengths = in_parts(func, *args)
    delattr(lengths.untyped_storage(), TAG)  # they are on the CPU also where the sequences are not
    return padded, lengths


KERNELS: dict[str, Callable[..., Any]] = {
    f"{cell}.{kind}": _kernel(cell, kind == "data") for cell in _KEPT for kind in ("input", "data")
} | {"_pad_packed_sequence": _pad_packed}
