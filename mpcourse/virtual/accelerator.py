"""Which accelerator torch finds: in a box a virtual GPU, elsewhere what it finds without virtual GPUs.

A DataLoader with pin_memory=True asks for it, and torch.distributed in `barrier` and in `fully_shard`.
"""

from collections.abc import Callable
from typing import Any

import torch

from mpcourse.virtual import box as boxes
from mpcourse.virtual.streams import current_stream, set_stream

# Asked before the backend of virtual GPUs has its name: from then on torch takes that for this machine's accelerator,
# and misses its hooks, which only a backend in C++ has.
_FOUND = torch._C._get_accelerator()


def _synchronize(device: Any = None) -> None:
    boxes.active_box().synchronize(device)


# What torch.accelerator answers in a box.
_ANSWERS: dict[str, Callable[..., Any]] = {
    "is_available": lambda: True,
    "device_count": lambda: len(boxes.active_box().devices),
    "current_accelerator": lambda check_available=False: torch.device(boxes.active_box().devices[0].type),
    "current_device_index": lambda: boxes.active_box().current,
    "current_device_idx": lambda: boxes.active_box().current,
    "set_device_index": lambda device: setattr(boxes.active_box(), "current", boxes.active_box().gpu_index(device)),
    "set_device_idx": lambda device: setattr(boxes.active_box(), "current", boxes.active_box().gpu_index(device)),
    "synchronize": _synchronize,
    "current_stream": current_stream,
    "set_stream": set_stream,
}


def _answering(plain: Callable[..., Any], answer: Callable[..., Any]) -> Callable[..., Any]:
    def asked(*args: Any, **kwargs: Any) -> Any:
        return (plain if boxes.box_here() is None else answer)(*args, **kwargs)

    return asked


def _elsewhere(check_available: bool = False) -> torch.device | None:
    return None if _FOUND.type == "cpu" or (check_available and not torch.accelerator.is_available()) else _FOUND


def _get_accelerator(check: bool | None = None) -> torch.device:
    return torch.accelerator.current_accelerator() or _FOUND


torch.accelerator.current_accelerator = _elsewhere
torch._C._get_accelerator = _get_accelerator
for _name, _answer in _ANSWERS.items():
    setattr(torch.accelerator, _name, _answering(getattr(torch.accelerator, _name), _answer))
