"""Tensors of a box where that box is not: in a thread that has not entered it, and after it was left.

They are the CPU's to torch, which would compute with them and mix devices. So a thread that begins while a box is
entered gets a mode that refuses them, and tensors that outlive a box become of a class that refuses to be used.
"""

import contextlib
import gc
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from mpcourse.virtual.nested import tensors_in

if TYPE_CHECKING:
    from mpcourse.virtual.box import Box

Tensor = torch.Tensor
NO_BOX = "this thread has no box: enter it here too, `with box.here():`"
# What may be asked of a tensor whose box was left: what it is, not what it holds.
_HARMLESS = {
    *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "ndim", "requires_grad", "is_leaf", "layout")),
    *(Tensor.size, Tensor.dim, Tensor.numel, Tensor.untyped_storage, Tensor.is_floating_point, Tensor.__hash__),
}


class NoBox(TorchFunctionMode):
    """In a thread without a box, refuses tensors of one."""

    def __init__(self, box: "Box", tag: str) -> None:
        super().__init__()
        self.box, self.tag = box, tag

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if not self.box.is_here() and func is not Tensor.untyped_storage:
            for t in tensors_in((*args, *kwargs.values())):
                with contextlib.suppress(NotImplementedError, ValueError):  # it has no storage
                    if getattr(t.untyped_storage(), self.tag, None) is not None:
                        raise RuntimeError(NO_BOX)
        return func(*args, **kwargs)


@contextlib.contextmanager
def threads_refuse(box: "Box", tag: str) -> Iterator[None]:
    """In here, threads that begin refuse tensors of `box` until they enter it."""
    start = threading.Thread.start

    def start_without_box(thread: threading.Thread) -> None:
        run = thread.run

        def run_without_box() -> None:
            with NoBox(box, tag):
                run()

        thread.run = run_without_box  # type: ignore[method-assign]
        start(thread)

    threading.Thread.start = start_without_box  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


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
_BACK = {left: plain for plain, left in _LEFT.items()}


def left_message(tensor: Any) -> str:
    """Why a tensor whose box was left is refused."""
    block = next((v for v in vars(tensor.untyped_storage()).values() if hasattr(v, "box")), None)
    where = "a device" if block is None else f"vgpu:{block.index}"
    return (
        f"this tensor of shape {tuple(tensor.shape)} is on {where} of another box, which was left: "
        "move it to the CPU before leaving a box, or enter the same box again"
    )


def change_class(box: "Box", tag: str, back: bool = False) -> None:
    """Have all tensors of `box` refuse to be used; or, `back`, have them be used again."""
    classes = _BACK if back else _LEFT
    tensors = [o for o in gc.get_objects() if type(o) in classes]
    with torch._C.DisableTorchFunction():
        for t in tensors:
            with contextlib.suppress(NotImplementedError, ValueError):  # it has no storage
                block = getattr(t.untyped_storage(), tag, None)
                if block is not None and block.box is box:
                    t.__class__ = classes[type(t)]
