"""Pinned memory of the host, and the thread of a DataLoader with pin_memory=True."""

from typing import Any

import torch
import torch.utils.data._utils.pin_memory as of_loader
from torch.nn.parameter import is_lazy

from mpcourse.virtual.gpus import box as boxes

Tensor = torch.Tensor
_PINNED = "mpcourse_pinned"  # an attribute of a storage


def pin_memory(mode: Any, func: Any, args: tuple, kwargs: dict) -> Tensor:
    """Copy to pinned memory, which is this machine's ordinary memory with a mark."""
    x = args[0]
    if (block := mode.box.block_of(x)) is not None:
        raise RuntimeError(
            f"cannot pin a tensor on {mode.box.device_at(block.index)}: only dense CPU tensors can be pinned"
        )
    if is_pinned(mode, func, args, kwargs):
        return x
    return mark_pinned(x.detach().clone())


def is_pinned(mode: Any, func: Any, args: tuple, kwargs: dict) -> bool:
    return holds_pinned(args[0])


def holds_pinned(x: Tensor) -> bool:
    """Return whether a CPU tensor is in pinned memory, which a GPU reads and writes without the host."""
    return not is_lazy(x) and getattr(x.untyped_storage(), _PINNED, False)


def without_pinning(kwargs: dict) -> dict:
    """Return keywords of a factory without `pin_memory=True`."""
    return {k: v for k, v in kwargs.items() if k != "pin_memory"}


def mark_pinned(x: Tensor) -> Tensor:
    setattr(x.untyped_storage(), _PINNED, True)
    return x


PIN_HANDLERS = {Tensor.pin_memory: pin_memory, Tensor.is_pinned: is_pinned}

_loop = of_loader._pin_memory_loop


def pin_memory_loop(*args: Any) -> None:
    """Run the loop of the DataLoader's own thread."""
    box = boxes.entered_anywhere()
    if box is None:
        return _loop(*args)
    with box.here():
        return _loop(*args)
