"""What torch's Python code for mixed precision asks of a device: torch.autocast("cuda") and GradScaler in a box."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.amp import GradScaler

from mpcourse.virtual.gpus.box import Box, box_here

# In a box both names mean its devices. torch's own modules ask for "cuda", as nn.MultiheadAttention does before it
# takes its fused path, and programs that were written for CUDA name it in their regions.
_TWINS = {"cuda": "vgpu", "vgpu": "cuda"}

_enter, _exit = torch.autocast.__enter__, torch.autocast.__exit__


def enter_region(self: Any) -> Any:
    if self.device in _TWINS and box_here() is not None:
        self._twin = torch.autocast(_TWINS[self.device], self.fast_dtype, self._enabled, self._cache_enabled)
        self._twin._enabled = self._enabled
        _enter(self._twin)
    return _enter(self)


def exit_region(self: Any, *error: Any) -> Any:
    result = _exit(self, *error)
    twin = self.__dict__.pop("_twin", None)
    if twin is not None:
        _exit(twin, *error)
    return result


# -- GradScaler --

_step, _update = GradScaler._maybe_opt_step, GradScaler.update
_get_scale, _get_tracker, _load = GradScaler.get_scale, GradScaler._get_growth_tracker, GradScaler.load_state_dict


def _dry_box() -> Box | None:
    box = box_here()
    return box if box is not None and box.dry else None


@contextlib.contextmanager
def _reading(box: Box, value: float) -> Iterator[None]:
    """Let `item()` of a tensor without data wait for its device, as usual, and return `value`, within this context."""
    box.stand_in = value
    try:
        yield
    finally:
        box.stand_in = None


def maybe_step(self: Any, optimizer: Any, state: dict, *args: Any, **kwargs: Any) -> Any:
    """Take every step in a dry box, because without data no gradient is found to be infinite."""
    if (box := _dry_box()) is None:
        return _step(self, optimizer, state, *args, **kwargs)
    with _reading(box, 0.0):
        for found_inf in state["found_inf_per_device"].values():
            found_inf.item()
    return optimizer.step(*args, **kwargs)


def _without_data(self: Any) -> tuple[float, int]:
    """Return the scale, and the steps since it last grew, where every step is taken."""
    return self.__dict__.get("_counted") or (self._init_scale, self._init_growth_tracker)


def update_scale(self: Any, new_scale: Any = None) -> None:
    _update(self, new_scale)
    if self._enabled and _dry_box() is not None:
        scale, steps = _without_data(self)
        if new_scale is not None:
            scale = new_scale if isinstance(new_scale, float) else scale
        elif steps + 1 == self._growth_interval:
            scale, steps = scale * self._growth_factor, 0
        else:
            steps += 1
        self._counted = scale, steps


def get_scale(self: Any) -> float:
    if not self._enabled or (box := _dry_box()) is None:
        return _get_scale(self)
    with _reading(box, _without_data(self)[0]):
        return _get_scale(self)


def get_tracker(self: Any) -> int:
    if not self._enabled or (box := _dry_box()) is None:
        return _get_tracker(self)
    with _reading(box, _without_data(self)[1]):
        return _get_tracker(self)


def load_state(self: Any, state: dict) -> None:
    _load(self, state)
    self._counted = None
