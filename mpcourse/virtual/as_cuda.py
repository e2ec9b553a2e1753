"""`virtual_gpus(2, as_cuda=True)`: the box's GPUs answer to "cuda", so that a program that names it runs as it is."""

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from mpcourse.virtual.box import Box

_KEPT = {"amp", "is_initialized"}  # torch.cuda's own


@contextlib.contextmanager
def answering_to_cuda(box: "Box") -> Iterator[None]:
    """In here, torch.cuda asks `box` what torch.vgpu asks it."""
    own = sys.modules["mpcourse.virtual.vgpu"]
    names = [n for n in vars(own) if not n.startswith("_") and n not in _KEPT and hasattr(torch.cuda, n)]
    names = [n for n in names if getattr(getattr(own, n), "__module__", "").startswith("mpcourse.")]
    before = {n: getattr(torch.cuda, n) for n in names}
    for n in names:
        setattr(torch.cuda, n, getattr(own, n))
    set_default_device = torch.set_default_device
    torch.set_default_device = lambda device: set_default_device(
        virtual(box, device) if device is not None and torch.device(device).type == "cuda" else device
    )
    try:
        yield
    finally:
        torch.set_default_device = set_default_device
        for n in names:
            setattr(torch.cuda, n, before[n])


def virtual(box: "Box", device: Any) -> torch.device:
    """The device that torch is given for one that the program names: "vgpu:1" for "cuda:1"."""
    return torch.device("vgpu", box.gpu_index(device))


def cuda(mode: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """`Tensor.cuda(device, non_blocking)`."""
    given = dict(zip(("device", "non_blocking"), args[1:], strict=False)) | kwargs
    device, non_blocking = given.get("device"), given.get("non_blocking")
    return mode.move(args[0], mode.box.index_of(_named(device)), bool(non_blocking))


def is_cuda(mode: Any, func: Any, args: tuple, kwargs: dict) -> bool:
    block = mode.box.block_of(args[0])
    return mode.box.as_cuda if block is not None else func(*args)


def type_of(mode: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """`Tensor.type()` names the device's kind."""
    block = mode.box.block_of(args[0])
    if len(args) > 1 or kwargs or block is None:
        return func(*args, **kwargs)
    plain = torch.empty(0, dtype=args[0].dtype, device="cpu").type()
    return plain.replace("torch.", f"torch.{mode.box.devices[0].type}.")


def _named(device: Any) -> torch.device:
    if device is None:
        return torch.device("cuda")
    return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)


CUDA_HANDLERS = {
    torch.Tensor.cuda: cuda,
    torch.Tensor.is_cuda.__get__: is_cuda,  # type: ignore[attr-defined]
    torch.Tensor.type: type_of,
}
