"""torch's Python functions that show a device, each with what it does for tensors on virtual GPUs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from mpcourse.virtual.gpus.as_cuda import CUDA_HANDLERS
from mpcourse.virtual.gpus.box import HOST, TAG, block_index
from mpcourse.virtual.gpus.device_checks import no_data
from mpcourse.virtual.gpus.pinned import PIN_HANDLERS
from mpcourse.virtual.gpus.source_line import asking_line
from mpcourse.virtual.gpus.unplaced import place, unplaced
from mpcourse.virtual.gpus.unsupported import UNSUPPORTED_HANDLERS
from mpcourse.virtual.line import location

if TYPE_CHECKING:
    from mpcourse.virtual.gpus.modes import FunctionMode

Tensor = torch.Tensor
_LEFT_BEHIND = "mpcourse_left_behind"  # an attribute of the storage of a gradient whose tensor has been moved


def index_of(mode: "FunctionMode", x: Tensor) -> int:
    return block_index(mode.box.block_of(x))


def _device(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> torch.device:
    block = mode.box.block_of(args[0])
    if block is None:  # in a dry box a tensor without data and device was moved to the CPU
        return mode.box.device_at(HOST) if mode.box.dry else func(*args)
    return mode.box.device_at(block.index)


def _get_device(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> int:
    return index_of(mode, args[0])  # -1 for a tensor on the CPU, as in torch


def _is_cpu(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> bool:
    return index_of(mode, args[0]) == HOST and (mode.box.dry or func(*args))


def _is_elsewhere(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> bool:
    return index_of(mode, args[0]) == HOST and func(*args)


def _cpu(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> Tensor:
    return mode.move(args[0], HOST, False)


def _to(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> Tensor:
    """Do all forms of Tensor.to: (dtype), (device, dtype), (other), with non_blocking, copy, memory_format."""
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
            device, dtype = box.device_at(index_of(mode, a)), a.dtype
        elif a is not None:
            device = a
    non_blocking, copy = (*flags, *[False] * (2 - len(flags)))
    non_blocking, copy = kwargs.pop("non_blocking", non_blocking), kwargs.pop("copy", copy)
    y = x
    if dtype not in (None, x.dtype) or kwargs.get("memory_format") is not None:
        y = func(x, dtype or x.dtype, **kwargs)  # on the side where it is, because torch converts before it copies
    if isinstance(device, str | torch.device) and torch.device(device).type == "meta":
        return func(y, "meta")
    moved = y if device is None else mode.move(y, box.index_of(device), non_blocking)
    return moved.clone() if copy and moved is x else moved


def _copy_(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> Tensor:
    """Copy in place; a Move does the part of autograd that torch does on real devices."""
    x, source, *rest = (*args, *kwargs.values()) if "src" in kwargs else args
    if isinstance(source, Tensor) and source.requires_grad and torch.is_grad_enabled():
        source = mode.move(source, index_of(mode, x), False)
    return func(x, source, *rest, **{k: v for k, v in kwargs.items() if k != "src"})


def _numpy(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> Any:
    if (index := index_of(mode, args[0])) != HOST:
        raise TypeError(
            f"can't convert {mode.box.names[index]} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    return _read(mode, func, args, kwargs)


def _read(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> Any:
    """Do what reads values without an aten operation: the host waits for them, and a dry box has none."""
    x, name = args[0], getattr(func, "__name__", "reading it")
    block = mode.box.block_of(x)
    if mode.box.dry and x.is_meta:
        raise no_data(f"{name}()")
    if block is not None:
        mode.box.wait_until(block.ready, name, location(asking_line()[0]))
    with mode.dispatch.paused():
        return func(*args, **kwargs)


def _repr(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> str:
    block = mode.box.block_of(args[0])
    if mode.box.dry and args[0].is_meta:
        device = mode.box.device_at(index_of(mode, args[0]))
        return f"tensor(..., size={tuple(args[0].shape)}, device='{device}')"
    text = _read(mode, func, args, kwargs)
    return text if block is None else f"{text[:-1]}, device='{mode.box.names[block.index]}')"


def _format(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> str:
    """Do f"{x}" as torch does: the number for a tensor without dimensions, and else what `repr` gives."""
    x, spec = args
    if x.dim() == 0 and type(x) is Tensor:
        return format(x.item(), spec)
    with mode:
        return object.__format__(x, spec)


def _dlpack(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> Any:
    if (index := index_of(mode, args[0])) != HOST:
        raise BufferError(
            f"Unsupported device in DLTensor: {mode.box.names[index]}. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    return func(*args, **kwargs)


def _grad(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> Any:
    """Return `.grad`, but only on its tensor's device, as torch's engine ensures on real devices."""
    grad = func(*args, **kwargs)
    if grad is not None:
        own = index_of(mode, args[0])
        if unplaced(grad):
            place(mode.dispatch, grad, own)
        block = mode.box.block_of(grad)
        on, left_behind = block_index(block), getattr(grad.untyped_storage(), _LEFT_BEHIND, False)
        if on != own and not left_behind and asking_line()[1] != "module":
            raise RuntimeError(
                f"a gradient of shape {tuple(grad.shape)} is on {mode.box.device_at(on)}, but its "
                f"tensor on {mode.box.device_at(own)}: a backward returned an invalid gradient, expected device "
                f"{mode.box.device_at(own)}. Does the backward of a copy move its gradient back?"
            )
        if block is not None and block.allocation.kind in ("temporaries", "buffers"):
            block.allocation.kind = "gradients"
    return grad


def _set_grad(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> None:
    x, grad = args
    if isinstance(grad, Tensor) and index_of(mode, grad) != index_of(mode, x):
        own, other = (mode.box.device_at(index_of(mode, t)) for t in args)
        raise RuntimeError(
            f"assigned grad has data located on a different device: the tensor is on {own}, the gradient on {other}"
        )
    func(x, grad)


def _set_data(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> None:
    """Set `.data`, which may move a tensor, as on CUDA. Its gradient stays where it is, and may be read there."""
    x = args[0]
    before = index_of(mode, x)
    func(*args)
    if before != index_of(mode, x) and (grad := _getter("grad")(x)) is not None:
        setattr(grad.untyped_storage(), _LEFT_BEHIND, True)


def _pad_packed(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> tuple[Tensor, Tensor]:
    padded, lengths = func(*args, **kwargs)
    if index_of(mode, lengths) != HOST:  # torch makes them on the CPU
        delattr(lengths.untyped_storage(), TAG)
    return padded, lengths


def _share_memory(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> Tensor:
    return args[0] if index_of(mode, args[0]) != HOST else func(*args)  # nothing to do, as on CUDA


def _deepcopy(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> Tensor:
    x, memo = args[0], args[1] if len(args) > 1 else kwargs.get("memo", {})
    if index_of(mode, x) == HOST or isinstance(x, torch.nn.Parameter) or not x.is_leaf:
        return func(*args, **kwargs)
    memo[id(x)] = copied = x.detach().clone().requires_grad_(x.requires_grad)
    return copied


def _from_data(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> Tensor:
    """Do torch.tensor and its like, which hide from dispatch modes: make the tensor on the CPU, then move it."""
    kwargs = dict(kwargs)
    device, needs_grad = kwargs.pop("device", None), kwargs.pop("requires_grad", False)
    data = args[0] if args else kwargs.get("data")
    if func is Tensor.new_tensor:
        target = index_of(mode, args[0])
    elif device is None:
        target = index_of(mode, data) if isinstance(data, Tensor) else HOST
    if device is not None:
        if isinstance(device, str | torch.device) and torch.device(device).type == "meta":
            return func(*args, device="meta", **kwargs).requires_grad_(needs_grad)
        target = mode.box.index_of(device)
    if func is not torch.tensor and func is not Tensor.new_tensor and isinstance(data, Tensor):
        return data.to(mode.box.device_at(target), kwargs.get("dtype") or data.dtype)
    return mode.move(func(*args, **kwargs), target, False).requires_grad_(needs_grad)


def _quantile(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> Tensor:
    """Do quantile; a number q becomes a tensor on the device, where torch's C++ code makes it."""
    given = dict(zip(("input", "q"), args, strict=False)) | kwargs
    x, q = given.pop("input"), given.pop("q")
    if not isinstance(q, Tensor) and index_of(mode, x) != HOST:
        with mode:
            q = torch.full((), q, dtype=x.dtype, device=mode.box.device_at(index_of(mode, x)))
    return func(x, q, *args[2:], **given)


def _unravel_index(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> Any:
    """Run Python code that makes tensors where the indices are, and so has to see where that is."""
    with mode:
        indices, shape = args[0] if args else kwargs["indices"], args[1] if len(args) > 1 else kwargs["shape"]
        return torch.functional._unravel_index(indices, shape).unbind(-1)


def _tensor_split(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> Any:
    """Do tensor_split, which reads on the CPU where to cut (aten/src/ATen/native/TensorShape.cpp)."""
    where = args[1] if len(args) > 1 else kwargs.get("indices_or_sections", kwargs.get("tensor_indices_or_sections"))
    if isinstance(where, Tensor) and (index := index_of(mode, where)) != HOST:
        raise RuntimeError(
            f"tensor_split expected tensor_indices_or_sections to be on cpu, but it's on {mode.box.names[index]}"
        )
    return func(*args, **kwargs)


def _ctc_loss(mode: "FunctionMode", func: Any, args: tuple, kwargs: dict) -> Tensor:
    """Do ctc_loss; the host reads the lengths, wherever they are (aten/src/ATen/native/LossCTC.cpp)."""

    def read(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return tuple(_read(mode, Tensor.tolist, (mode.move(value.detach(), HOST, False),), {}))

    if index_of(mode, args[0] if args else kwargs["log_probs"]) == HOST:
        return func(*args, **kwargs)
    args = (*args[:2], *map(read, args[2:4]), *args[4:])
    return func(*args, **{k: read(v) if k.endswith("lengths") else v for k, v in kwargs.items()})


def _getter(name: str) -> Any:
    """Return what torch calls for `tensor.name`."""
    return getattr(Tensor, name).__get__


def _setter(name: str) -> Any:
    """Return what torch calls for `tensor.name = value`."""
    return getattr(Tensor, name).__set__


Handler = Callable[["FunctionMode", Any, tuple, dict], Any]
HANDLERS: dict[Any, Handler] = {
    _getter("device"): _device,
    Tensor.get_device: _get_device,
    torch.get_device: _get_device,
    _getter("is_cpu"): _is_cpu,
    _getter("is_meta"): _is_elsewhere,
    _getter("grad"): _grad,
    _setter("grad"): _set_grad,
    _setter("data"): _set_data,
    Tensor.to: _to,
    Tensor.cpu: _cpu,
    Tensor.copy_: _copy_,
    Tensor.numpy: _numpy,
    Tensor.__array__: _numpy,
    Tensor.tolist: _read,
    Tensor.__repr__: _repr,
    Tensor.__format__: _format,
    Tensor.__dlpack__: _dlpack,
    Tensor.__dlpack_device__: _dlpack,
    Tensor.__deepcopy__: _deepcopy,
    Tensor.share_memory_: _share_memory,
    torch._VF._pad_packed_sequence: _pad_packed,
    Tensor.new_tensor: _from_data,
    torch.tensor: _from_data,
    torch.as_tensor: _from_data,
    torch.asarray: _from_data,
    F.ctc_loss: _ctc_loss,
    **dict.fromkeys((torch.quantile, torch.nanquantile, Tensor.quantile, Tensor.nanquantile), _quantile),
    torch.unravel_index: _unravel_index,
    **dict.fromkeys((torch.tensor_split, Tensor.tensor_split), _tensor_split),
    **CUDA_HANDLERS,
    **UNSUPPORTED_HANDLERS,
    **PIN_HANDLERS,
}
