"""The device of what autograd makes for itself in backward.

Backward makes zeros for a gradient that was not given (the other half of a `chunk`), and indices, from the shape and
the real device that it recorded in forward. It did not record the virtual device. So such a tensor has none until an
operation uses it, and then gets that of the operation's other tensors: in a correct program there is only one. Numbers
that torch's C++ code makes for itself are accepted by operations on any device, and stay where they are.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from mpcourse.virtual.gpus.box import HOST, Block
from mpcourse.virtual.gpus.cost import describe
from mpcourse.virtual.gpus.source_line import asking_line

if TYPE_CHECKING:
    from mpcourse.virtual.gpus.dispatch import DispatchMode

Tensor = torch.Tensor
UNPLACED = -2  # the index of a device that is not known yet
_MARK = "mpcourse_unplaced"  # an attribute of a storage
_NUMBER = "mpcourse_number"  # likewise
_DEVICES = "mpcourse_devices"  # an attribute of an autograd.Function's node: the devices of its forward's outputs


def mark(tensors: Sequence[Tensor]) -> None:
    """Mark tensors that have no device yet."""
    for t in tensors:
        setattr(t.untyped_storage(), _MARK, True)


def unplaced(tensor: Tensor) -> bool:
    """Return whether the tensor has no device yet."""
    return getattr(tensor.untyped_storage(), _MARK, False)


def made_by_torch(operation: str, kwargs: dict) -> bool:
    """Return whether an operation makes a number for torch's C++ code.

    Such a number is on the CPU, as in where(mask, x, 0.0), or on the tensor's device, as in cosine_similarity. CUDA
    refuses neither. (A program's own scalar_tensor says whether to pin memory.)
    """
    return operation == "scalar_tensor" and "pin_memory" not in kwargs


def mark_number(number: Tensor) -> None:
    """Mark a number that is accepted by operations on any device."""
    setattr(number.untyped_storage(), _NUMBER, True)


def is_marked_number(tensor: Tensor) -> bool:
    """Return whether an operation on another device accepts the number."""
    return tensor.dim() == 0 and getattr(tensor.untyped_storage(), _NUMBER, False)


def place(mode: "DispatchMode", tensor: Tensor, index: int) -> None:
    """Give a tensor a device: its memory and the time to fill it are counted there."""
    setattr(tensor.untyped_storage(), _MARK, False)
    if index == HOST:
        return
    box, phase = mode.box, mode.phase()
    line = asking_line()[0] if box.record else None
    block = box.place(tensor, index, "temporaries", "zeros", line, phase)
    gpu, nbytes = box.gpus[index], tensor.untyped_storage().nbytes()
    seconds = gpu.kernel + nbytes / (gpu.bandwidth * gpu.memory_efficiency)
    block.ready = box.bill(describe(torch.ops.aten.zeros.default), index, 0.0, seconds, nbytes, 0, line, phase)


def place_beside(mode: "DispatchMode", inputs: list[Tensor], blocks: Sequence[Block | None]) -> Sequence[Block | None]:
    """Place those among `inputs` that have no device beside the others; return the blocks afterwards."""
    waiting = [t for t, b in zip(inputs, blocks, strict=True) if b is None and unplaced(t)]
    if not waiting:
        return blocks
    index = next((b.index for b in blocks if b is not None), HOST)
    for t in waiting:
        if unplaced(t):  # the same tensor may be there twice
            place(mode, t, index)
    return mode.box.blocks_of(inputs)


def after_host(inputs: list[Tensor], outputs: list[Tensor]) -> None:
    """Handle an operation of backward without a tensor on a GPU: without devices of inputs, outputs have none."""
    waiting = [t for t in inputs if unplaced(t)]
    if waiting and len(waiting) == len(inputs):
        mark(outputs)
    else:
        for t in waiting:
            setattr(t.untyped_storage(), _MARK, False)  # it is on the host


def note_devices(node: Any, devices: list[int | None]) -> None:
    """Record where an autograd.Function's outputs are, for the gradients that torch makes for unused ones."""
    setattr(node, _DEVICES, devices)


def place_gradients(mode: "DispatchMode", node: Any, gradients: Sequence[Any]) -> None:
    """Place the zeros among the gradients of an autograd.Function's backward where the outputs were."""
    for gradient, index in zip(gradients, getattr(node, _DEVICES, ()), strict=False):
        if index is not None and isinstance(gradient, Tensor) and unplaced(gradient):
            place(mode, gradient, index)
