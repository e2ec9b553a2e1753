"""The upper mode: torch's Python functions, as far as a device shows in them."""

import contextlib
import threading
import unittest.mock
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from mpcourse.virtual import dropped_attention, encoder, kernels, recurrent
from mpcourse.virtual.asked import asking_line, in_backward
from mpcourse.virtual.box import HOST, Box
from mpcourse.virtual.dispatch import DispatchMode
from mpcourse.virtual.dropout import dropout
from mpcourse.virtual.dry import attention
from mpcourse.virtual.line import Line, told
from mpcourse.virtual.refuse import no_data, tensors_in

Tensor = torch.Tensor
_CPU_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


class Move(torch.autograd.Function):
    """A copy to another device, whose gradient goes back the same way (Chainer's F.copy)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mode: DispatchMode, target: int, non_blocking: bool, line: Line | None) -> Tensor:
        block = mode.box.block_of(x)
        ctx.mode, ctx.source, ctx.line = mode, HOST if block is None else block.index, line
        return mode.transfer(x, target, non_blocking, line)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple:
        back = gradients[0]
        if back.requires_grad and torch.is_grad_enabled():  # for second derivatives
            return Move.apply(back, ctx.mode, ctx.source, False, ctx.line), None, None, None, None
        return ctx.mode.transfer(back, ctx.source, False, ctx.line), None, None, None, None


class FunctionMode(TorchFunctionMode):
    """Answers `.device`, turns `.to` and `.cpu` into copies, and refuses what would show where the data really are."""

    def __init__(self, box: Box, dispatch: DispatchMode) -> None:
        super().__init__()
        self.box, self.dispatch = box, dispatch

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if torch.is_autocast_enabled("cpu") and self._on_device(args, kwargs or {}):
            with torch._C._ExcludeDispatchKeyGuard(_CPU_AUTOCAST):
                return self._call(func, args, kwargs)
        return self._call(func, args, kwargs)

    def _on_device(self, args: tuple, kwargs: dict) -> bool:
        """Whether a tensor is on a virtual GPU: the autocast of CPUs leaves it alone, though its data are there."""
        return any(block is not None for block in self.box.blocks_of(tensors_in((*args, *kwargs.values()))))

    def _call(self, func: Any, args: tuple, kwargs: dict | None) -> Any:
        handler = _HANDLERS.get(func)
        if handler is not None:
            return handler(self, func, args, kwargs or {})
        box, before = self.box, self.box.call
        box.call = (args, kwargs or {})
        try:
            return func(*args, **(kwargs or {}))
        finally:
            box.call = before

    def move(self, x: Tensor, target: int, non_blocking: bool) -> Tensor:
        """`x` itself if it is on device `target`, else a copy there, differentiable where x is."""
        block = self.box.block_of(x)
        if (HOST if block is None else block.index) == target:
            return x
        line, doing = asking_line()
        if x.requires_grad and torch.is_grad_enabled():
            return Move.apply(x, self.dispatch, target, non_blocking, line)
        return self.dispatch.transfer(x, target, non_blocking, line, doing)


def _index(mode: FunctionMode, x: Tensor) -> int:
    block = mode.box.block_of(x)
    return HOST if block is None else block.index


def _device(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> torch.device:
    block = mode.box.block_of(args[0])
    if block is None:  # in a dry box a tensor without data and device is one that was moved to the CPU
        return mode.box.device_at(HOST) if mode.box.dry else func(*args)
    return mode.box.device_at(block.index)


def _get_device(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> int:
    return _index(mode, args[0])  # -1 of a tensor on the CPU, as torch has it


def _is_cpu(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> bool:
    return _index(mode, args[0]) == HOST and (mode.box.dry or func(*args))


def _is_elsewhere(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> bool:
    return _index(mode, args[0]) == HOST and func(*args)


def _cpu(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> Tensor:
    return mode.move(args[0], HOST, False)


def _to(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> Tensor:
    """All forms of Tensor.to: (dtype), (device, dtype), (other), each with non_blocking, copy, memory_format."""
    box, kwargs = mode.box, dict(kwargs)
    x, *rest = args
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    if (other := kwargs.pop("other", None)) is not None:
        rest.insert(0, other)
    flags = []
    for a in rest:
        if isinstance(a, torch.dtype):
            dtype = a
        elif isinstance(a, bool):
            flags.append(a)
        elif isinstance(a, Tensor):
            device, dtype = box.device_at(_index(mode, a)), a.dtype
        elif a is not None:
            device = a
    non_blocking, copy = (*flags, *[False] * (2 - len(flags)))
    non_blocking, copy = kwargs.pop("non_blocking", non_blocking), kwargs.pop("copy", copy)
    y = x
    if dtype not in (None, x.dtype) or kwargs.get("memory_format") is not None:
        y = func(x, dtype or x.dtype, **kwargs)  # on the side where it is: torch converts before it copies
    if device is not None and torch.device(device).type == "meta":
        return func(y, "meta")
    moved = y if device is None else mode.move(y, box.index_of(device), non_blocking)
    return moved.clone() if copy and moved is x else moved


def _copy_(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> Tensor:
    """In place; the part of autograd that torch would do on real devices is done by a Move."""
    x, source, *rest = (*args, *kwargs.values()) if "src" in kwargs else args
    if isinstance(source, Tensor) and source.requires_grad and torch.is_grad_enabled():
        source = mode.move(source, _index(mode, x), False)
    return func(x, source, *rest, **{k: v for k, v in kwargs.items() if k != "src"})


def _numpy(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> Any:
    if (index := _index(mode, args[0])) != HOST:
        raise TypeError(
            f"can't convert vgpu:{index} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    return _read(mode, func, args, kwargs)


def _read(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> Any:
    """What reads values without an aten operation: the host waits for them, and a dry box has none."""
    x, name = args[0], getattr(func, "__name__", "reading it")
    block = mode.box.block_of(x)
    if mode.box.dry and x.is_meta:
        raise no_data(f"{name}()")
    if block is not None:
        mode.box.wait_until(block.ready, name, told(asking_line()[0]))
    with mode.dispatch.paused():
        return func(*args, **kwargs)


def _repr(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> str:
    block = mode.box.block_of(args[0])
    if mode.box.dry and args[0].is_meta:
        device = mode.box.device_at(_index(mode, args[0]))
        return f"tensor(..., size={tuple(args[0].shape)}, device='{device}')"
    text = _read(mode, func, args, kwargs)
    return text if block is None else f"{text[:-1]}, device='vgpu:{block.index}')"


def _grad(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> Any:
    """Whoever asks for `.grad` gets it only where it belongs, as torch's engine sees to on real devices."""
    grad = func(*args, **kwargs)
    if grad is not None:
        block, own = mode.box.block_of(grad), _index(mode, args[0])
        if (HOST if block is None else block.index) != own and asking_line()[1] != "module":  # which moves it next
            raise RuntimeError(
                f"a gradient of shape {tuple(grad.shape)} is on {mode.box.device_at(_index(mode, grad))}, but its "
                f"tensor on {mode.box.device_at(own)}: a backward returned an invalid gradient, expected device "
                f"{mode.box.device_at(own)}. Does the backward of a copy move its gradient back?"
            )
        if block is not None and block.allocation.kind in ("temporaries", "buffers"):
            block.allocation.kind = "gradients"
    return grad


def _deepcopy(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> Tensor:
    x, memo = args[0], args[1] if len(args) > 1 else kwargs.get("memo", {})
    if _index(mode, x) == HOST or isinstance(x, torch.nn.Parameter) or not x.is_leaf:
        return func(*args, **kwargs)
    memo[id(x)] = copied = x.detach().clone().requires_grad_(x.requires_grad)
    return copied


def _from_data(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> Tensor:
    """torch.tensor and its like, which hide from dispatch modes: made on the CPU, then moved."""
    kwargs = dict(kwargs)
    device, needs_grad = kwargs.pop("device", None), kwargs.pop("requires_grad", False)
    data = args[0] if args else kwargs.get("data")
    if func is Tensor.new_tensor:
        target = _index(mode, args[0])
    elif device is None:
        target = _index(mode, data) if isinstance(data, Tensor) else HOST
    if device is not None:
        if torch.device(device).type == "meta":
            return func(*args, device="meta", **kwargs).requires_grad_(needs_grad)
        target = mode.box.index_of(device)
    if func is not torch.tensor and func is not Tensor.new_tensor and isinstance(data, Tensor):
        return data.to(mode.box.device_at(target), kwargs.get("dtype") or data.dtype)
    return mode.move(func(*args, **kwargs), target, False).requires_grad_(needs_grad)


def _attention(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> Tensor:
    q = args[0] if args else kwargs["query"]
    on_device = mode.box.dry and _index(mode, q) != HOST
    return attention(*args, **kwargs) if on_device else func(*args, **kwargs)


def _multi_head_attention(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> Any:
    """Python code that calls attention while this mode is off: it finds the fused one by its name."""
    if not mode.box.dry or _index(mode, args[0]) == HOST:
        return func(*args, **kwargs)
    with unittest.mock.patch.object(F, "scaled_dot_product_attention", attention):
        return func(*args, **kwargs)


def _getter(name: str) -> Any:
    """What torch calls for `tensor.name`."""
    return getattr(Tensor, name).__get__


Handler = Callable[[FunctionMode, Any, tuple, dict], Any]
_HANDLERS: dict[Any, Handler] = {
    _getter("device"): _device,
    Tensor.get_device: _get_device,
    _getter("is_cpu"): _is_cpu,
    _getter("is_cuda"): _is_elsewhere,
    _getter("is_meta"): _is_elsewhere,
    _getter("grad"): _grad,
    Tensor.to: _to,
    Tensor.cpu: _cpu,
    Tensor.copy_: _copy_,
    Tensor.numpy: _numpy,
    Tensor.__array__: _numpy,
    Tensor.tolist: _read,
    Tensor.__repr__: _repr,
    Tensor.__deepcopy__: _deepcopy,
    Tensor.new_tensor: _from_data,
    torch.tensor: _from_data,
    torch.as_tensor: _from_data,
    torch.asarray: _from_data,
    F.scaled_dot_product_attention: _attention,
    F.multi_head_attention_forward: _multi_head_attention,
}


kernels.register({"dropout": dropout} | recurrent.KERNELS | encoder.KERNELS | dropped_attention.KERNELS)
encoder.install()
_here = threading.local()


@contextlib.contextmanager
def entered(box: Box) -> Iterator[None]:
    """Both modes, in this thread."""
    dispatch = DispatchMode(box)
    _here.mode = FunctionMode(box, dispatch)
    try:
        with kernels.active(dispatch), _here.mode, dispatch:
            yield
    finally:
        _here.mode = None


# While a mode handles a function it is off, and `loss.backward()` is such a function. But backward runs Python code:
# the backward of an autograd.Function, hooks, the forward that a checkpoint repeats. All these must see devices.
_run_backward = torch.autograd.graph._engine_run_backward


def _run_backward_in_mode(*args: Any, **kwargs: Any) -> Any:
    mode = getattr(_here, "mode", None)
    if mode is None or mode in _get_current_function_mode_stack():
        return _run_backward(*args, **kwargs)
    before, mode.box.call = mode.box.call, None  # what backward makes is not made for the arguments of `backward`
    try:
        with mode:
            return in_backward(_run_backward, *args, **kwargs)
    finally:
        mode.box.call = before


torch.autograd._engine_run_backward = _run_backward_in_mode


# Checkpointing compares the tensors of both forwards. It looks at the first ones while an operation is handled, and the
# mode off, at the second ones with it on: so that they compare equal, both times it sees where the data really are.
_extractors = torch.utils.checkpoint._allowed_determinism_checks_to_fns
_extract = _extractors["default"]


def _extract_out_of_mode(x: Tensor) -> dict[str, Any]:
    with torch._C.DisableTorchFunction():
        return _extract(x)


_extractors["default"] = _extract_out_of_mode
