"""`virtual_gpus(2, as_cuda=True)`: the box's GPUs answer to "cuda", so that programs that name it run unchanged."""

import importlib
import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from mpcourse.virtual.gpus.box import Box

_MODULES = {
    f"torch.cuda{path}": path.lstrip(".")
    for path in ("", ".memory", ".random", ".nccl", ".nvtx", ".graphs", ".profiler", ".streams", ".tunable", ".sparse",
                 ".gds", ".green_contexts")
}  # fmt: skip
_OF_BACKENDS = ("blas_workspace_size", "cublas_workspace_size", "cublaslt_workspace_size")
# Names of torch.cuda that stay torch's own, because they ask no device.
KEPT = {
    *("amp", "classproperty", "cudaStatus", "CudaError", "DeferredCudaCallError", "get_gencode_flags"),
    *("has_half", "has_magma", "is_initialized", "default_generators"),
    "is_bf16_supported",  # in torch_patches.TABLE, because boxes without as_cuda need it, too
}


def _names(module: Any) -> Iterator[str]:
    """Yield the public names of a module of torch.cuda that are its own, without modules and imported names."""
    for name in dir(module):
        value = getattr(module, name, None)
        if name.startswith("_") or isinstance(value, types.ModuleType):
            continue
        if getattr(value, "__module__", "").startswith("torch.") or name in getattr(module, "__all__", ()):
            yield name


class _Refused(type):
    """What is not offered: a class, so that code that only checks isinstance with it continues."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(cls.__doc__)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(cls.__doc__)

    def __getitem__(cls, index: Any) -> Any:
        raise RuntimeError(cls.__doc__)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and instance.type() == f"torch.cuda.{cls.__name__}"


def _refused(name: str) -> type:
    """Make what refuses a name. name: as a program writes it, `torch.cuda.memory_usage`."""
    of_vgpu = sys.modules["mpcourse.virtual.gpus.vgpu"]
    text = f"virtual GPUs do not offer {name}{of_vgpu.instead(name.removeprefix('torch.cuda.'))}"
    return _Refused(name.rpartition(".")[2], (), {"__doc__": text})


_set_default_device = torch.set_default_device


def cuda_patches(box: "Box") -> Iterator[tuple[Any, str, Any]]:
    """Yield patches that make torch.cuda ask `box` what torch.vgpu asks it, and refuse all other calls."""
    offered = vars(sys.modules["mpcourse.virtual.gpus.vgpu"])
    ours = {n: v for n, v in offered.items() if getattr(v, "__module__", "").startswith("mpcourse.virtual.")}
    for path, short in _MODULES.items():
        module = importlib.import_module(path)
        for name in [n for n in _names(module) if n not in KEPT]:
            own = name in ours and short != "nccl"
            yield module, name, ours[name] if own else _refused(f"{path}.{name}")
    for name in (*_OF_BACKENDS, "cufft_plan_cache"):
        yield torch.backends.cuda, name, _refused(f"torch.backends.cuda.{name}")
    yield torch.cuda, "default_generators", (torch.default_generator,) * len(box.devices)  # the CPU's draws for all

    def set_default_device(device: Any) -> None:
        named_cuda = device is not None and torch.device(device).type == "cuda"
        _set_default_device(virtual(box, device) if named_cuda else device)

    yield torch, "set_default_device", set_default_device


def virtual(box: "Box", device: Any) -> torch.device:
    """Return the device that torch gets for the one that the program names: "vgpu:1" for "cuda:1"."""
    return torch.device("vgpu", box.gpu_index(device))


def cuda(mode: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """Do `Tensor.cuda(device, non_blocking)`."""
    given = dict(zip(("device", "non_blocking"), args[1:], strict=False)) | kwargs
    device, non_blocking = given.get("device"), given.get("non_blocking")
    return mode.move(args[0], mode.box.index_of(_named(device)), bool(non_blocking))


def is_cuda(mode: Any, func: Any, args: tuple, kwargs: dict) -> bool:
    block = mode.box.block_of(args[0])
    return mode.box.as_cuda if block is not None else func(*args)


def type_of(mode: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """Do `Tensor.type()`, which names the device's kind."""
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
