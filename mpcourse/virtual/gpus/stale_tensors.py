"""Tensors that outlive their box: they refuse to be used until it is entered again.

To torch they are tensors of the CPU, and `x.device` or `x.cpu()` asks nothing that could refuse: torch looks for
`__torch_function__` only in tensors of classes other than Tensor and Parameter. So they get such a class when the box
is left, and their own class again when it is entered. A subclass from the beginning would not work, because an
optimizer keeps the Parameter that was moved, and torch has faster code for a plain one.
"""

import contextlib
import gc
import weakref
from typing import TYPE_CHECKING, Any

import torch

from mpcourse.virtual.gpus.nested import tensors_in

if TYPE_CHECKING:
    from mpcourse.virtual.gpus.box import Box

Tensor = torch.Tensor
# What may be asked of a tensor whose box was left: its properties, but not its data.
_HARMLESS = {
    *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "ndim", "requires_grad", "is_leaf", "layout")),
    *(Tensor.size, Tensor.dim, Tensor.numel, Tensor.untyped_storage, Tensor.is_floating_point, Tensor.__hash__),
}


class _Left:
    """A tensor whose box was left."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            left = next((t for t in tensors_in((*args, *(kwargs or {}).values())) if isinstance(t, _Left)), None)
            if func in _HARMLESS or left is None:
                return func(*args, **(kwargs or {}))
            shape = tuple(left.shape)
            if func in (Tensor.__repr__, Tensor.__format__):
                return f"tensor(..., size={shape}, of a box that was left)"
            raise RuntimeError(left_message(left))


class LeftTensor(_Left, Tensor):
    """A plain tensor whose box was left."""


class LeftParameter(_Left, torch.nn.Parameter):
    """A Parameter whose box was left."""


_LEFT: dict[type, type] = {Tensor: LeftTensor, torch.nn.Parameter: LeftParameter}
_PLAIN = {left: plain for plain, left in _LEFT.items()}


def left_message(tensor: Any) -> str:
    """Say why a tensor whose box was left is refused."""
    block = next((v for v in vars(tensor.untyped_storage()).values() if hasattr(v, "box")), None)
    where = "a device" if block is None else f"vgpu:{block.index}"
    return (
        f"this tensor of shape {tuple(tensor.shape)} is on {where} of another box, which was left: "
        "move it to the CPU before leaving a box, or enter the same box again"
    )


def make_stale(box: "Box", tag: str) -> list["weakref.ref[Tensor]"]:
    """Make all tensors of `box` refuse to be used; return these tensors."""
    stale = []
    tensors = [o for o in gc.get_objects() if type(o) in _LEFT]
    with torch._C.DisableTorchFunction():
        for t in tensors:
            with contextlib.suppress(NotImplementedError, ValueError):  # it has no storage
                block = getattr(t.untyped_storage(), tag, None)
                if block is not None and block.box is box:
                    t.__class__ = _LEFT[type(t)]
                    stale.append(weakref.ref(t))
    return stale


def make_usable(stale: list["weakref.ref[Tensor]"]) -> None:
    """Make the tensors that `make_stale` returned usable again."""
    for reference in stale:
        tensor = reference()
        if tensor is not None:
            tensor.__class__ = _PLAIN[type(tensor)]
    stale.clear()
