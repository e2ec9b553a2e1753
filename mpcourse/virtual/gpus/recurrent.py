"""LSTM, GRU and RNN as cuDNN does them: all layers and steps in one operation, which keeps a reserve for backward.

torch calls cuDNN in aten/src/ATen/native/cudnn/RNN.cpp (`_cudnn_rnn`), and casts its arguments in an autocast region in
aten/src/ATen/cudnn/AutocastRNN.cpp. cuDNN does not publish how large the reserve is. It was measured for four layers of
320 units on 25 000 rows (pytorch issue 2895). An LSTM's is 736 000 000 bytes: 5 numbers for each unit of each layer,
the four gates and the cell, and 1 for each number that goes from a layer to the next. A GRU's is 864 000 000 bytes: 6
instead of 5. No measurement of an RNN is known to us: 1 is assumed.

A step waits for the one before it. In each layer a step is two kernels, a product and an elementwise one. The product
reads the weights of the state again; with few rows it is one wave of tiles, and each tile goes through the inner
dimension, which is as long as the state. Layers work on different steps at the same time (Appleyard et al. 2016,
Optimizing Performance of Recurrent Neural Networks on GPUs), so this wait is counted once for all layers. The layers of
a bidirectional network cannot, because a layer needs both directions of the one below. The products with a layer's
inputs, and the products for the weights' gradients, are made for all steps at once.

DeepBench (baidu-research/DeepBench, results/train) measured a step of an LSTM forward on a V100, with batches of 16 or
32 and without the products of the inputs. In microseconds, with ours in brackets:

| units | 256 | 512 | 1024 | 2048 | 4096 |
|---|---|---|---|---|---|
| float32 | 30 (16) | 44 (26) | 77 (47) | 144 (99) | 400 (379) |
| float16 | 27 (16) | 32 (26) | 51 (47) | 88 (88) | 223 (192) |

In pull request 62143 of pytorch an LSTM of 128 units takes 9.5 a step with one layer and 26 with four (11 and 29).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from mpcourse.virtual.gpus import autocast
from mpcourse.virtual.gpus.box import TAG
from mpcourse.virtual.gpus.cost import in_parts, rounds_to_tf32
from mpcourse.virtual.gpus.device_checks import judged
from mpcourse.virtual.gpus.dispatch import DispatchMode
from mpcourse.virtual.gpus.kernels import Whole, whole
from mpcourse.virtual.specs import GPU

Tensor = torch.Tensor
UNIT = 0.04e-6  # seconds of a step's product for each unit of the state
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
        if torch.is_autocast_enabled("vgpu"):  # not cached, because they are copied into one piece for cuDNN
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
            """Lay out steps one after the other, as cuDNN writes them even where `batch_first` swaps the dimensions."""
            if not any(batch_first):
                return x.new_empty(*x.shape[:-1], width)
            return x.new_empty(x.shape[1], x.shape[0], width).transpose(0, 1)

        def gradient(i: int, of: Tensor) -> Tensor:
            return by_steps(of, of.shape[-1]) if i == 0 else torch.empty_like(of)

        rows = math.prod(x.shape[:-1])
        units, passed = states[-1].shape[-1], states[0].shape[-1]  # of the cell, and of its output
        directions = 1 + bidirectional
        matrices = [w for w in weights if w.dim() == 2]  # for each layer and direction: of its input, and of its state
        of_input = sum(w.numel() for w in matrices[:: 2 + (passed < units)])
        of_state = sum(w.numel() for w in matrices) - of_input
        flops = 2 * rows * (of_input + of_state)
        steps = x.shape[1 if any(batch_first) else 0] if batch_sizes is None else len(batch_sizes)
        waits = steps * layers if bidirectional else steps + layers - 1

        def takes(gpu: GPU, backward: bool) -> float:
            rate = gpu.rate(dtype, tf32=rounds_to_tf32("rnn"))
            reads = steps * of_state * dtype.itemsize / (gpu.bandwidth * gpu.memory_efficiency)
            in_order = max(waits * passed * UNIT, reads, 2 * rows * of_state / rate)
            at_once = 2 * rows * of_input + (flops if backward else 0)
            return 2 * gpu.kernel * steps * layers * directions + in_order + at_once / rate

        numbers = rows * directions * (layers * _KEPT[cell] * units + (layers - 1) * passed)
        call = Whole(
            mode,
            func,
            "_cudnn_rnn",
            compute,
            shapes,
            gradient,
            flops=(flops, 2 * flops),
            takes=takes,
            reserve=numbers * tensors[0].element_size(),
            trains=trains,
        )
        return whole(call, tensors)

    return run


def _pad_packed(mode: DispatchMode, func: Any, *args: Any) -> tuple[Tensor, Tensor]:
    padded, lengths = in_parts(func, *args)
    delattr(lengths.untyped_storage(), TAG)  # they are on the CPU even where the sequences are not
    return padded, lengths


KERNELS: dict[str, Callable[..., Any]] = {
    f"{cell}.{kind}": _kernel(cell, kind == "data") for cell in _KEPT for kind in ("input", "data")
} | {"_pad_packed_sequence": _pad_packed}
