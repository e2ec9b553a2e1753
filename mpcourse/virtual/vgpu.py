"""`torch.vgpu`: what torch.cuda is to real GPUs, for those of the box that is entered.

Importing this names the "vgpu" backend, once in a process: torch.device("vgpu:1") is a device from here on.
"""

import contextlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from mpcourse.virtual import amp
from mpcourse.virtual.box import HOST, TAG, active_box
from mpcourse.virtual.memory import KINDS, size


def is_available() -> bool:
    """Whether this thread is in a box."""
    return device_count() > 0


def is_initialized() -> bool:
    return True


def _is_in_bad_fork() -> bool:
    return False


# Virtual GPUs draw random numbers from the CPU's generator, so that their values are the CPU's.
def manual_seed_all(seed: int) -> None:
    """Nothing: torch.manual_seed has seeded the CPU's generator."""


def get_rng_state(device: Any = None) -> torch.Tensor:
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    torch.set_rng_state(state)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that torch.autocast takes: CUDA's does not object to float32."""
    return [torch.float16, torch.bfloat16, torch.float32]


def device_count() -> int:
    try:
        return len(active_box().devices)
    except RuntimeError:
        return 0


def current_device() -> int:
    """The index of a plain "vgpu"; 0 unless `set_device` or `device` says otherwise."""
    return active_box().current


def set_device(device: Any) -> None:
    active_box().current = _index(device)


@contextlib.contextmanager
def device(device: Any) -> Iterator[None]:
    """In here, a plain "vgpu" is this device."""
    box = active_box()
    before, box.current = box.current, _index(device)
    try:
        yield
    finally:
        box.current = before


def synchronize(device: Any = None) -> None:
    """Wait for all devices, or for one. Outside of a box there is nothing to wait for: torch.profiler asks anywhere."""
    if not is_available():
        return
    box = active_box()
    box.synchronize(None if device is None else box.devices[_index(device)])


def memory_allocated(device: Any = None) -> int:
    """Bytes of tensors, each rounded up as the caching allocator does. `box.ledger.used` has them exact."""
    return _allocator(device).allocated


def max_memory_allocated(device: Any = None) -> int:
    """The most that `memory_allocated` was since the start or `reset_peak_memory_stats`."""
    return _allocator(device).max_allocated


def memory_reserved(device: Any = None) -> int:
    """Bytes that the caching allocator has taken from the driver."""
    return _allocator(device).reserved


def max_memory_reserved(device: Any = None) -> int:
    return _allocator(device).max_reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    box = active_box()
    box.ledger.reset(box.now, _index(device))


def empty_cache() -> None:
    """Give reserved memory that no tensor uses back to the driver, on all devices."""
    for allocator in active_box().ledger.allocators:
        allocator.empty_cache()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of the device, as its driver sees it."""
    box, index = active_box(), _index(device)
    gpu = box.gpus[index]
    return gpu.memory - gpu.context - box.ledger.allocators[index].reserved, gpu.memory


def memory_summary(device: Any = None) -> str:
    """The bytes held now, by kind, and what the allocator and the context add."""
    box, index = active_box(), _index(device)
    kinds = box.ledger.kinds(index)
    rows = [(kind, kinds[kind]) for kind in KINDS if kind in kinds]
    rows += [("allocated", memory_allocated(index)), ("reserved", memory_reserved(index))]
    rows += [("context", box.gpus[index].context)]
    return "\n".join(f"vgpu:{index}  {name:<16}{size(nbytes):>12}" for name, nbytes in rows)


def get_device_name(device: Any = None) -> str:
    return active_box().gpus[_index(device)].name


def get_device_properties(device: Any = None) -> SimpleNamespace:
    """name and total_memory of a device."""
    gpu = active_box().gpus[_index(device)]
    return SimpleNamespace(name=gpu.name, total_memory=gpu.memory)


class Event:
    """A point in a device's queue, as torch.cuda.Event: `record` it, wait, and ask for the milliseconds between two."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.enable_timing, self.seconds = enable_timing, 0.0

    def record(self) -> None:
        """After all that is in the current device's queue."""
        box = active_box()
        self.seconds = max(box.now, box.free_at[box.current])

    def synchronize(self) -> None:
        active_box().wait_until(self.seconds, "synchronize")

    def query(self) -> bool:
        return active_box().now >= self.seconds

    def elapsed_time(self, end: "Event") -> float:
        """Milliseconds from this event to `end`. Raises ValueError unless both were made with enable_timing=True."""
        if not (self.enable_timing and end.enable_timing):
            raise ValueError("both events must be made with Event(enable_timing=True)")
        return (end.seconds - self.seconds) * 1e3


def _index(device: Any) -> int:
    box = active_box()
    if device is None:
        return box.current
    index = box.index_of(torch.device("vgpu", device) if isinstance(device, int) else device)
    if index == HOST:
        raise ValueError(f"expected a vgpu device, but got {device}")
    return index


def _allocator(device: Any) -> Any:
    return active_box().ledger.allocators[_index(device)]


def _location(storage: Any) -> str | None:
    """For torch.save: where a storage is."""
    block = getattr(storage, TAG, None)
    return None if block is None else f"vgpu:{block.index}"


def _restore(storage: Any, location: str) -> Any:
    """For torch.load: the storage there. Without a box it has to be mapped elsewhere."""
    if not location.startswith("vgpu"):
        return None
    try:
        box = active_box()
    except RuntimeError as error:
        raise RuntimeError(f"a tensor was saved on {location}. {error}; or load with map_location='cpu'") from None
    flat = torch.empty(0, dtype=torch.uint8)
    flat.set_(storage)
    return flat.to(box.device_at(box.index_of(location))).untyped_storage()


def _outside(*args: Any, **kwargs: Any) -> Any:
    """Every operation on a vgpu device that no box catches."""
    active_box()  # raises
    raise RuntimeError("this operation does not exist on virtual GPUs")


def _optimizer_begins(optimizer: Any, args: Any, kwargs: Any) -> None:
    if is_available():
        active_box().optimizing = True


def _optimizer_ends(optimizer: Any, args: Any, kwargs: Any) -> None:
    if not is_available():
        return
    box = active_box()
    box.optimizing = False
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, torch.Tensor) and (block := box.block_of(value)) is not None:
                block.allocation.kind = "optimizer state"


torch.utils.rename_privateuse1_backend("vgpu")
torch._register_device_module("vgpu", sys.modules[__name__])
torch.serialization.register_package(5, _location, _restore)
register_optimizer_step_pre_hook(_optimizer_begins)
register_optimizer_step_post_hook(_optimizer_ends)
_library = torch.library.Library("_", "IMPL")
_library.fallback(_outside, "PrivateUse1")
amp.install()
