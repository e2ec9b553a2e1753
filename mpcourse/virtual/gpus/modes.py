"""Modes of threads: in a box, torch's Python functions that show a device; outside of it, a refusal."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from mpcourse.virtual.gpus.as_cuda import virtual
from mpcourse.virtual.gpus.box import NO_BOX, TAG, Box, block_index, entered_anywhere
from mpcourse.virtual.gpus.crossing import transfer
from mpcourse.virtual.gpus.dispatch import DispatchMode
from mpcourse.virtual.gpus.handlers import HANDLERS
from mpcourse.virtual.gpus.nested import tensors_in
from mpcourse.virtual.gpus.pinned import mark_pinned, without_pinning
from mpcourse.virtual.gpus.source_line import asking_line
from mpcourse.virtual.gpus.unplaced import place, unplaced
from mpcourse.virtual.line import Line

Tensor = torch.Tensor
_LEFT = "this backward copies to {} of another box, which was left: call it in the box, or enter the same box again"
_CPU_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


class Move(torch.autograd.Function):
    """A copy to another device, whose gradient returns the same way (Chainer's F.copy)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mode: DispatchMode, target: int, non_blocking: bool, line: Line | None) -> Tensor:
        block = mode.box.block_of(x)
        ctx.box, ctx.source, ctx.target, ctx.line = mode.box, block_index(block), target, line
        return transfer(mode, x, target, non_blocking, line, in_graph=True)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple:
        back, here = gradients[0], mode_here()
        if here is None or here.box is not ctx.box:
            left = _LEFT.format(ctx.box.names[max(ctx.source, ctx.target)])
            raise RuntimeError(NO_BOX if entered_anywhere() is ctx.box else left)
        mode = here.dispatch
        if unplaced(back):
            place(mode, back, ctx.target)
        if back.requires_grad and torch.is_grad_enabled():  # for second derivatives
            return Move.apply(back, mode, ctx.source, False, ctx.line), None, None, None, None
        return transfer(mode, back, ctx.source, False, ctx.line, in_graph=True), None, None, None, None


class FunctionMode(TorchFunctionMode):
    """Answers `.device`, turns `.to` and `.cpu` into copies, and refuses what would show where the data really are."""

    def __init__(self, box: Box, dispatch: DispatchMode) -> None:
        super().__init__()
        self.box, self.dispatch = box, dispatch

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if self.dispatch.depth:
            return func(*args, **kwargs)
        if kwargs.get("device") is not None or kwargs.get("pin_memory"):
            kwargs, pinned = self._of_factory(kwargs)
            if pinned:
                return mark_pinned(self.__torch_function__(func, types, args, kwargs))
        if torch.is_autocast_enabled("cpu") and self._on_device(args, kwargs):
            with torch._C._ExcludeDispatchKeyGuard(_CPU_AUTOCAST):
                return self._call(func, args, kwargs)
        return self._call(func, args, kwargs)

    def _on_device(self, args: tuple, kwargs: dict) -> bool:
        """Return whether a tensor is on a virtual GPU, so that the CPU's autocast leaves it alone."""
        return any(block is not None for block in self.box.blocks_of(tensors_in((*args, *kwargs.values()))))

    def _call(self, func: Any, args: tuple, kwargs: dict) -> Any:
        handler = HANDLERS.get(func)
        dispatch, before = self.dispatch, self.dispatch.call
        dispatch.call = (args, kwargs)
        try:
            return func(*args, **kwargs) if handler is None else handler(self, func, args, kwargs)
        finally:
            dispatch.call = before

    def _of_factory(self, kwargs: dict) -> tuple[dict, bool]:
        """Return keywords as torch's C++ code takes them, and whether the tensor is to be in pinned memory."""
        device, pinned = kwargs.get("device"), bool(kwargs.get("pin_memory"))
        is_cuda = isinstance(device, str | torch.device) and torch.device(device).type == "cuda"
        if is_cuda:
            kwargs = kwargs | {"device": virtual(self.box, device)}
        if pinned:
            if device is not None and torch.device(device).type in ("vgpu", "cuda"):
                raise RuntimeError(f"Only dense CPU tensors can be pinned, not one on {device}")
            kwargs = without_pinning(kwargs)
        return kwargs, pinned

    def move(self, x: Tensor, target: int, non_blocking: bool) -> Tensor:
        """Return `x` itself if it is on device `target`, else a copy there, differentiable where x is."""
        block = self.box.block_of(x)
        if block_index(block) == target:
            return x
        line, doing = asking_line()
        if x.requires_grad and torch.is_grad_enabled():
            return Move.apply(x, self.dispatch, target, non_blocking, line)
        return transfer(self.dispatch, x, target, non_blocking, line, doing)


class _Here(threading.local):
    mode: FunctionMode | None = None


_here = _Here()


def mode_here() -> FunctionMode | None:
    """Return the mode of this thread, or None if it has entered no box."""
    return _here.mode


@contextlib.contextmanager
def active(mode: FunctionMode) -> Iterator[None]:
    """Give this thread both modes within this context."""
    _here.mode = mode
    try:
        with mode, mode.dispatch:
            yield
    finally:
        _here.mode = None


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """Let torch's own code run on CPU tensors within this context: no box sees it, so it is faster."""
    mode = mode_here()
    with mode.dispatch.paused() if mode else contextlib.nullcontext(), torch._C.DisableTorchFunction():
        yield


class NoBox(TorchFunctionMode):
    """In a thread that has not entered a box, refuses tensors of that box."""

    def __init__(self, box: Box) -> None:
        super().__init__()
        self.box = box

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if not self.box.is_here() and func is not Tensor.untyped_storage:
            for t in tensors_in((*args, *kwargs.values())):
                with contextlib.suppress(NotImplementedError, ValueError):  # it has no storage
                    if getattr(t.untyped_storage(), TAG, None) is not None:
                        raise RuntimeError(NO_BOX)
        return func(*args, **kwargs)


_start = threading.Thread.start


def start_thread(thread: threading.Thread) -> None:
    """Start a thread. If a box is entered, the thread refuses the box's tensors until it enters it."""
    box = entered_anywhere()
    if box is not None:
        thread.run = _without(box, thread.run)  # type: ignore[method-assign]
    _start(thread)


def _without(box: Box, run: Callable[[], None]) -> Callable[[], None]:
    def run_without_box() -> None:
        with NoBox(box):
            run()

    return run_without_box
