"""The "vgpu" backend, and which accelerator torch finds: a virtual GPU in a box, this machine's elsewhere.

A DataLoader with pin_memory=True asks for it, and so do `barrier` and `fully_shard` of torch.distributed.
"""

from functools import cache
from types import ModuleType

import torch

from mpcourse.virtual.gpus.box import box_here

# Read before the backend has its name: from then on torch takes the backend for this machine's accelerator.
FOUND = torch._C._get_accelerator()


class _Hooks(torch._C._acc.PrivateUse1Hooks):
    """What torch's C++ code asks of the backend."""

    def is_available(self) -> bool:
        return box_here() is not None


_hooks = _Hooks()


def _current_accelerator(check_available: bool = False) -> torch.device | None:
    """Return `torch.accelerator.current_accelerator`, in and outside of a box."""
    box = box_here()
    if box is not None:
        return torch.device(box.devices[0].type)
    return None if FOUND.type == "cpu" or (check_available and not torch.accelerator.is_available()) else FOUND


@cache
def name_backend(module: ModuleType) -> None:
    """Make "vgpu" the name of a device, and `module` what `torch.cuda` is for CUDA: once, and for good.

    Since torch 2.8, the autograd engine takes a backend with a name for the only accelerator of the process, and no
    longer computes gradients on a real GPU (https://github.com/pytorch/pytorch/issues/161129).
    """
    torch.utils.rename_privateuse1_backend("vgpu")
    torch._C._acc.register_python_privateuseone_hook(_hooks)
    torch._register_device_module("vgpu", module)
    # The one patch that stays outside of a box, because torch's own function would say "vgpu" there.
    torch.accelerator.current_accelerator = _current_accelerator
