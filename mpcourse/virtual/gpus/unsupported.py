"""What torch has and virtual GPUs do not support, each refused in a line that says what to do instead."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from mpcourse.virtual.gpus.box import box_here
from mpcourse.virtual.gpus.nested import tensors_in

Tensor = torch.Tensor
_SPARSE = "sparse tensors are not offered on virtual GPUs: keep them on the CPU, or use dense ones"
_NESTED = "nested tensors are not offered on virtual GPUs: pad them, torch.nn.utils.rnn.pad_sequence, and pass a mask"
_COMPILE = (
    "torch.compile is not offered in a box of virtual GPUs, which runs each operation by itself: leave it out there"
)
_EXPORT = "torch.export is not offered in a box of virtual GPUs: export the model on the CPU, before the box is entered"
_DLPACK = "to_dlpack hands out no data of a virtual GPU: use Tensor.cpu()"
NO_TRANSFORMS = "torch.func and vmap are not offered for tensors on virtual GPUs: use torch.autograd, or a loop"


def refuse_layout(tensor: Tensor) -> RuntimeError:
    """Return the refusal of a tensor on a device that has no storage of its own."""
    return RuntimeError(_NESTED if tensor.is_nested else _SPARSE)


def check_transforms(tensors: list[Tensor]) -> None:
    """Raise RuntimeError where one of torch.func's transformations handles a device's tensor."""
    functorch, box = torch._C._functorch, box_here()
    for t in tensors:
        while functorch.is_functorch_wrapped_tensor(t):
            t = functorch.get_unwrapped(t)
            if not functorch.is_functorch_wrapped_tensor(t) and box is not None and box.block_of(t) is not None:
                raise RuntimeError(NO_TRANSFORMS)


def _refusing(what: str) -> Callable[..., Any]:
    """Make a handler for functions that make tensors of such a kind: refused on a device, done on the CPU."""

    def handler(mode: Any, func: Any, args: tuple, kwargs: dict) -> Any:
        device = kwargs.get("device")
        if device is not None and torch.device(device).type in ("vgpu", "cuda"):
            raise RuntimeError(what)
        if any(mode.box.block_of(t) is not None for t in tensors_in((*args, *kwargs.values()))):
            raise RuntimeError(what)
        return func(*args, **kwargs)

    return handler


_SPARSE_MAKERS = (
    *(torch.sparse_coo_tensor, torch.sparse_compressed_tensor, torch.sparse_csr_tensor, torch.sparse_csc_tensor),
    *(torch.sparse_bsr_tensor, torch.sparse_bsc_tensor, Tensor.to_sparse, Tensor.to_sparse_coo, Tensor.to_sparse_csr),
    *(Tensor.to_sparse_csc, Tensor.to_sparse_bsr, Tensor.to_sparse_bsc),
)
UNSUPPORTED_HANDLERS = dict.fromkeys(_SPARSE_MAKERS, _refusing(_SPARSE))


def _refused(owner: Any, name: str, concerns: Callable[..., bool], what: str) -> tuple[Any, str, Callable[..., Any]]:
    """Return a patch that makes `owner.name` refuse in a box, where it `concerns` devices."""
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def function(*args: Any, **kwargs: Any) -> Any:
        if box_here() is not None and concerns(*args, **kwargs):
            raise RuntimeError(what)
        return plain(*args, **kwargs)

    return owner, name, function


def _always(*args: Any, **kwargs: Any) -> bool:
    return True


def has_device(value: Any, *args: Any, **kwargs: Any) -> bool:
    """Return whether a tensor or a name of a device is among the arguments."""
    values = [value, *args, *kwargs.values()]
    box = box_here()
    return any("vgpu" in str(v) or "cuda" in str(v) for v in values if isinstance(v, str | torch.device)) or any(
        box is not None and box.block_of(t) is not None for t in tensors_in(values)
    )


PATCHES = [
    _refused(owner, name, concerns, what)
    for owner, name, concerns, what in (
        (torch, "compile", _always, _COMPILE),
        (torch.export, "export", _always, _EXPORT),
        (torch.nested, "nested_tensor", has_device, _NESTED),
        (torch.nested, "as_nested_tensor", has_device, _NESTED),
        (torch.utils.dlpack, "to_dlpack", has_device, _DLPACK),
    )
]
