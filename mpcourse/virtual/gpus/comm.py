"""torch.cuda.comm, and nn.DataParallel, which is made of it, on virtual GPUs.

torch copies in C++ and runs a thread for each device. Here one thread enqueues on one device after the other; queues
and links still run side by side on the clock.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from mpcourse.virtual.gpus.box import active_box

Tensor = torch.Tensor


def _devices(devices: Sequence[Any] | None) -> list[torch.device]:
    box = active_box()
    return [box.device_at(box.gpu_index(d)) for d in (range(len(box.devices)) if devices is None else devices)]


def _destination(destination: Any) -> torch.device:
    if destination == -1 or (destination is not None and str(destination) == "cpu"):
        return torch.device("cpu")
    return _devices([destination])[0]


def broadcast(tensor: Tensor, devices: Sequence[Any] | None = None, *, out: Sequence[Tensor] | None = None) -> tuple:
    """Copy `tensor` to each of `devices`, or into each tensor of `out`; where it already is, it is not copied."""
    if out is not None:
        return tuple(each.copy_(tensor) for each in out)
    return tuple(tensor.to(device, non_blocking=True) for device in _devices(devices))


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[Any], buffer_size: int = 0) -> list[tuple]:
    """Return copies of all `tensors` for each device."""
    return [tuple(t.to(device, non_blocking=True) for t in tensors) for device in _devices(devices)]


def reduce_add(inputs: Sequence[Tensor], destination: Any = None) -> Tensor:
    """Sum tensors of several devices on one: the current one, unless `destination` names another."""
    device = _destination(destination)
    total = inputs[0].to(device)
    for t in inputs[1:]:
        total = total + t.to(device)
    return total


def reduce_add_coalesced(inputs: Sequence[Any], destination: Any = None, buffer_size: int = 0) -> tuple:
    """Do `reduce_add` with the first tensors of all devices, with the second ones, and so on."""
    return tuple(reduce_add(tensors, destination) for tensors in zip(*inputs, strict=True))


def scatter(
    tensor: Tensor, devices: Sequence[Any] | None = None, chunk_sizes: Sequence[int] | None = None, dim: int = 0,
    streams: Any = None, *, out: Sequence[Tensor] | None = None,
) -> tuple:  # fmt: skip
    """Copy a piece of `tensor` to each of `devices`, or into each tensor of `out`."""
    sizes = [t.shape[dim] for t in out] if out is not None else chunk_sizes
    targets = [t.device for t in out] if out is not None else _devices(devices)
    pieces = tensor.chunk(len(targets), dim) if sizes is None else tensor.split(list(sizes), dim)
    if out is not None:
        return tuple(each.copy_(piece) for each, piece in zip(out, pieces, strict=True))
    return tuple(piece.to(device, non_blocking=True) for piece, device in zip(pieces, targets, strict=False))


def gather(tensors: Sequence[Tensor], dim: int = 0, destination: Any = None, *, out: Tensor | None = None) -> Tensor:
    """Join tensors of several devices on one device."""
    device = out.device if out is not None else _destination(destination)
    whole = torch.cat([t.to(device) for t in tensors], dim)
    return whole if out is None else out.copy_(whole)


def parallel_apply(
    modules: Sequence[nn.Module], inputs: Sequence[Any], kwargs: Sequence[dict] | None = None, devices: Any = None
) -> list:
    """Do `torch.nn.parallel.parallel_apply`, one device after the other."""
    given = kwargs or [{}] * len(modules)
    return [
        module(*(args if isinstance(args, list | tuple) else (args,)), **options)
        for module, args, options in zip(modules, inputs, given, strict=True)
    ]


def scatter_forward(ctx: Any, devices: Any, chunk_sizes: Any, dim: int, x: Tensor) -> tuple:
    ctx.dim, ctx.input_device = dim, x.get_device()
    return scatter(x, devices, chunk_sizes, dim)
