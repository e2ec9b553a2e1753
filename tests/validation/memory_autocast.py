"""Autocast by CUDA's rules, for the fake tensors of the CPU in the independent count.

Which operations cast what they are given is read in the header of torch that has CUDA's lists (ATen/autocast_mode.h).
What each list does, and which casts are kept until a region ends, is written down here from ATen/autocast_mode.cpp.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.utils.weak import WeakTensorKeyDictionary

Tensor = torch.Tensor
Kernel = Callable[..., Any]
HEADER = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
KEY = "AutocastCPU"
_KEYS = torch._C.DispatchKeySet(torch._C._dispatch_key_parse(KEY))
_kept = WeakTensorKeyDictionary()  # from a weight to its cast


@contextlib.contextmanager
def autocast_as_cuda() -> Iterator[None]:
    """Have `torch.autocast("cpu")` cast what `torch.autocast("cuda")` casts on a GPU."""
    clear = torch.clear_autocast_cache

    def clear_all() -> None:  # torch calls it at the end of the outermost region
        _kept.clear()
        clear()

    with (
        torch.library._scoped_library("aten", "IMPL") as library,
        mock.patch.object(torch, "clear_autocast_cache", clear_all),
    ):
        for name in torch._C._dispatch_get_all_op_names():
            if name.startswith("aten::") and torch._C._dispatch_has_kernel_for_dispatch_key(name, KEY):
                library.impl(name, torch.library.fallthrough_kernel, KEY)  # not by the CPU's list
        for macro, make in _MAKE.items():
            for name in listed(macro):
                packet, _, overload = name.partition(".")
                library.impl(name, make(getattr(getattr(torch.ops.aten, packet), overload or "default")), KEY)
        yield


def listed(macro: str) -> list[str]:
    """Find the operations in one of CUDA's lists. macro: LOWER_PRECISION_FP, FP32, FP32_SET_OPT_DTYPE or PROMOTE."""
    _, after = HEADER.read_text().split(f"#define AT_FORALL_{macro}(_)")
    lines = after.split("\n\n")[0]
    return [".".join(filter(None, names)) for names in re.findall(r"_\((\w+)(?:, (\w+))?\)", lines)]


def region_dtype() -> torch.dtype:
    return torch.get_autocast_dtype("cpu")


def in_region(dtype: torch.dtype | None, *tensors: Tensor | None) -> tuple[Any, ...]:
    """Cast tensors to `dtype`, or with None to that of the region of autocast. Outside of a region, do nothing."""
    return tuple(_cast(t, dtype or region_dtype()) for t in tensors) if torch.is_autocast_enabled("cpu") else tensors


def _castable(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point() and x.dtype is not torch.float64


def _cast(x: Any, dtype: torch.dtype) -> Any:
    """Cast a tensor, or those in a list, to `dtype`; a weight once in a region."""
    if isinstance(x, list | tuple):
        return [_cast(each, dtype) for each in x]
    if not _castable(x) or x.dtype is dtype:
        return x
    weight = x.dtype is torch.float32 and x.requires_grad and x.is_leaf and not x._is_view()
    if not weight or dtype is not region_dtype() or not torch.is_autocast_cache_enabled():
        return x.to(dtype)
    if x not in _kept:
        with torch.enable_grad():
            _kept[x] = x.to(dtype)
    return _kept[x]


def _all_in(dtype_of: Callable[[list[Tensor]], torch.dtype]) -> Callable[[Any], Kernel]:
    def make(func: Any) -> Kernel:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            flat = [x for a in (*args, *kwargs.values()) for x in (a if isinstance(a, list | tuple) else [a])]
            dtype = dtype_of([x for x in flat if _castable(x)])
            args, kwargs = _cast(args, dtype), {name: _cast(value, dtype) for name, value in kwargs.items()}
            with torch._C._ExcludeDispatchKeyGuard(_KEYS):
                return func(*args, **kwargs)

        return kernel

    return make


def _into_float32(func: Any) -> Kernel:
    """Ask for a result in float32 where the caller asks for no dtype. The input stays as it is."""

    def kernel(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        asked = any(isinstance(value, torch.dtype) for value in (*args, *kwargs.values()))
        if _castable(x) and not asked:
            kwargs["dtype"] = torch.float32
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            return func(x, *args, **kwargs)

    return kernel


def _widest(tensors: list[Tensor]) -> torch.dtype:
    return torch.float32 if any(t.dtype is torch.float32 for t in tensors) else region_dtype()


_MAKE: dict[str, Callable[[Any], Kernel]] = {
    "LOWER_PRECISION_FP": _all_in(lambda tensors: region_dtype()),
    "FP32": _all_in(lambda tensors: torch.float32),
    "FP32_SET_OPT_DTYPE": _into_float32,
    "PROMOTE": _all_in(_widest),
}
