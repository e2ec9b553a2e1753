"""`torch.vgpu`: what torch.cuda is for real GPUs, for those of the box that is entered.

On a machine without a real GPU, importing this module makes torch.device("vgpu:1") a device. On others the first box
does, because gradients on the real GPU cannot be computed from then on (accelerator.py).
"""

import contextlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from mpcourse.virtual.gpus import accelerator
from mpcourse.virtual.gpus.box import active_box, box_here
from mpcourse.virtual.gpus.ledger import KINDS, size
from mpcourse.virtual.gpus.streams import Event, Stream, current_stream, default_stream, set_stream, stream  # noqa: F401
from mpcourse.virtual.specs import LINKS, THROUGH_HOST


def is_available() -> bool:
    """Return whether this thread is in a box."""
    return device_count() > 0


def is_initialized() -> bool:
    return True


def init() -> None:
    """Do nothing: a box is ready when it is entered."""


def _is_in_bad_fork() -> bool:
    return False


# Virtual GPUs draw random numbers from the CPU's generator, so that their values are the CPU's.
def manual_seed(seed: int) -> None:
    """Seed the generator that the devices draw from, which is the CPU's."""
    torch.default_generator.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generator that all devices draw from, which is the CPU's."""
    torch.default_generator.manual_seed(seed)


def seed() -> None:
    torch.default_generator.seed()


def seed_all() -> None:
    torch.default_generator.seed()


def initial_seed() -> int:
    return torch.initial_seed()


def get_rng_state(device: Any = None) -> torch.Tensor:
    return torch.get_rng_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the state for each device, which is the same for all."""
    return [torch.get_rng_state()] * device_count()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    torch.set_rng_state(state)


def set_rng_state_all(states: Any) -> None:
    torch.set_rng_state(states[0])


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that torch.autocast takes; like CUDA's, they include float32."""
    return [torch.float16, torch.bfloat16, torch.float32]


def device_count() -> int:
    try:
        return len(active_box().devices)
    except RuntimeError:
        return 0


def current_device() -> int:
    """Return the index of a plain "vgpu": 0 unless `set_device` or `device` has changed it."""
    return active_box().current


def set_device(device: Any) -> None:
    active_box().current = _index(device)


@contextlib.contextmanager
def device(device: Any) -> Iterator[None]:
    """Make a plain "vgpu" mean this device within this context."""
    box = active_box()
    before, box.current = box.current, _index(device)
    try:
        yield
    finally:
        box.current = before


@contextlib.contextmanager
def device_of(tensor: torch.Tensor) -> Iterator[None]:
    """Make a plain "vgpu" mean the device of `tensor` within this context; a tensor on the CPU changes nothing."""
    block = active_box().block_of(tensor)
    with contextlib.nullcontext() if block is None else device(block.index):
        yield


def synchronize(device: Any = None) -> None:
    """Wait for all devices, or for one. Do nothing outside of a box, because torch.profiler calls this anywhere."""
    if not is_available():
        return
    box = active_box()
    box.synchronize(None if device is None else box.devices[_index(device)])


def memory_allocated(device: Any = None) -> int:
    """Return bytes of tensors, each rounded up as in the caching allocator; `box.ledger.used` has them exact."""
    return _allocator(device).allocated


def max_memory_allocated(device: Any = None) -> int:
    """Return the most that `memory_allocated` was since the start or `reset_peak_memory_stats`."""
    return _allocator(device).max_allocated


def memory_reserved(device: Any = None) -> int:
    """Return the bytes that the caching allocator has taken from the driver."""
    return _allocator(device).reserved


def max_memory_reserved(device: Any = None) -> int:
    return _allocator(device).max_reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    box = active_box()
    box.ledger.reset(box.now, _index(device))


def empty_cache() -> None:
    """Return reserved memory that no tensor uses to the driver, on all devices."""
    for allocator in active_box().ledger.allocators:
        allocator.empty_cache()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return (free, total) bytes of the device, as its driver sees it."""
    box, index = active_box(), _index(device)
    gpu = box.gpus[index]
    return gpu.memory - gpu.context - box.ledger.allocators[index].reserved, gpu.memory


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """List the bytes held now, by kind, and what the allocator and the context add."""
    box, index = active_box(), _index(device)
    kinds = box.ledger.kinds(index)
    rows = [(kind, kinds[kind]) for kind in KINDS if kind in kinds]
    rows += [("allocated", memory_allocated(index)), ("reserved", memory_reserved(index))]
    rows += [("context", box.gpus[index].context)]
    return "\n".join(f"{box.names[index]}  {name:<16}{size(nbytes):>12}" for name, nbytes in rows)


def memory_stats(device: Any = None) -> dict[str, int]:
    """Return what the box counts, by torch.cuda.memory_stats' names: allocated, active, reserved bytes, allocations."""
    box, index = active_box(), _index(device)
    allocator = box.ledger.allocators[index]
    stats: dict[str, int] = {}
    for name, current, peak in (
        ("allocated_bytes", allocator.allocated, allocator.max_allocated),
        ("active_bytes", allocator.allocated, allocator.max_allocated),
        ("reserved_bytes", allocator.reserved, allocator.max_reserved),
    ):
        stats |= {f"{name}.all.current": current, f"{name}.all.peak": peak}
    stats["allocation.all.current"] = sum(a.device == index for a in box.ledger.live.values())
    return stats


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """Return `memory_stats` with its names split at their dots."""
    nested: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        *path, last = name.split(".")
        inner = nested
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return nested


def memory_cached(device: Any = None) -> int:
    """Return `memory_reserved`, under its old name."""
    return memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    """Return `max_memory_reserved`, under its old name."""
    return max_memory_reserved(device)


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Let the allocator have no more than `fraction` of the device's memory. Raises ValueError unless 0 to 1."""
    if not 0 <= fraction <= 1:
        raise ValueError(f"the fraction must be between 0 and 1, not {fraction}")
    index = _index(device)
    gpu = active_box().gpus[index]
    _allocator(index).capacity = min(int(fraction * gpu.memory), gpu.memory - gpu.context)


def get_per_process_memory_fraction(device: Any = None) -> float:
    """Return the part of the device's memory that the allocator may have."""
    index = _index(device)
    return _allocator(index).capacity / active_box().gpus[index].memory


def reset_max_memory_allocated(device: Any = None) -> None:
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Any = None) -> None:
    reset_peak_memory_stats(device)


def ipc_collect() -> None:
    """Do nothing: a box shares no memory with other processes."""


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Return whether two devices copy to each other without the host between them."""
    return _index(device) != _index(peer_device) and active_box().link != LINKS[THROUGH_HOST]


def get_device_name(device: Any = None) -> str:
    return active_box().gpus[_index(device)].name


class Properties(SimpleNamespace):
    """What is known of a device: name, total_memory (bytes), major, minor, multi_processor_count, warp_size."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"virtual GPUs do not know {name}: get_device_properties has {', '.join(vars(self))}")


def get_device_properties(device: Any = None) -> Properties:
    """Return name, total_memory (bytes), major and minor (compute capability), multiprocessors of a device."""
    gpu = active_box().gpus[_index(device)]
    major, minor = gpu.capability
    known = Properties(name=gpu.name, total_memory=gpu.memory, major=major, minor=minor, warp_size=32)
    if gpu.multiprocessors:
        known.multi_processor_count = gpu.multiprocessors
    return known


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Return (major, minor) of a device's `GPU`."""
    return active_box().gpus[_index(device)].capability


def is_tf32_supported() -> bool:
    """Return whether the current device's tensor cores round float32 to TF32."""
    return get_device_capability() >= (8, 0)


def is_current_stream_capturing() -> bool:
    """Return False: virtual GPUs have no graphs."""
    return False


def get_arch_list() -> list[str]:
    """Return the architectures for which kernels exist: those of the box's devices."""
    return sorted({"sm_{}{}".format(*gpu.capability) for gpu in active_box().gpus})


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether the current device computes in bfloat16 by itself or, including_emulation, at all."""
    return including_emulation or get_device_capability() >= (8, 0)


def to_vgpu(self: torch.Tensor, device: Any = None, non_blocking: bool = False) -> torch.Tensor:
    """Do Tensor.vgpu(device), as Tensor.cuda(device)."""
    box = active_box()
    return self.to(box.device_at(box.gpu_index(device)), non_blocking=non_blocking)


def module_to_vgpu(self: Any, device: Any = None) -> Any:
    """Do Module.vgpu(device), as Module.cuda(device)."""
    return self._apply(lambda t: t.vgpu(device))


_GRAPHS = "; each operation is enqueued by itself, so leave the graph out"
_HISTORY = "; box.ledger.history(device) has each change of the memory held"
_EVENTS = "; box.events names the line that asked for each operation"
_BUSY = "; mpcourse.virtual.busy says how long each device computed"
_ALLOCATOR = "; a box has one allocator, which box.ledger.allocators shows"
# What to do instead, by the beginning of a name in torch.cuda.
_INSTEAD = {
    "memory_snapshot": _HISTORY,
    "memory_usage": _BUSY,
    "utilization": _BUSY,
    "memory.memory_snapshot": _HISTORY,
    "memory": _HISTORY,
    "CUDAGraph": _GRAPHS,
    "graph": _GRAPHS,
    "make_graphed": _GRAPHS,
    "nvtx": _EVENTS,
    "profiler": _EVENTS,
    "nccl": "; torch.cuda.comm copies and adds over the devices of a box",
    "MemPool": _ALLOCATOR,
    "use_mem_pool": _ALLOCATOR,
    "caching_allocator": _ALLOCATOR,
    "CUDAPluggable": _ALLOCATOR,
    "change_current_allocator": _ALLOCATOR,
    "StreamContext": "; torch.cuda.stream(s) is one",
    "ExternalStream": "; torch.cuda.Stream() makes one",
    "get_stream_from_external": "; torch.cuda.Stream() makes one",
}


def instead(name: str) -> str:
    """Say what to do in place of something that is not offered, as the end of a sentence; often ""."""
    if name.endswith(("Tensor", "Storage")):
        return "; torch.tensor(values, dtype=..., device=...) makes one"
    return next((text for begin, text in _INSTEAD.items() if name.startswith(begin)), "")


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    raise AttributeError(f"virtual GPUs do not offer torch.vgpu.{name}{instead(name)}")


def _index(device: Any) -> int:
    return active_box().gpu_index(device)


def _allocator(device: Any) -> Any:
    return active_box().ledger.allocators[_index(device)]


_restore_location = torch.serialization.default_restore_location


def restore_location(storage: Any, location: str) -> Any:
    """Move a storage, for torch.load, to where it was, if that was on a device of this thread's box."""
    box = box_here()
    if box is None or not location.startswith(("vgpu", "cuda") if box.as_cuda else "vgpu"):
        return _restore_location(storage, location)
    flat = torch.empty(0, dtype=torch.uint8)
    flat.set_(storage)
    return flat.to(box.device_at(box.index_of(location))).untyped_storage()


def _outside(*args: Any, **kwargs: Any) -> Any:
    """Refuse an operation on a vgpu device that no box catches."""
    active_box()  # raises
    raise RuntimeError("this operation does not exist on virtual GPUs")


def optimizer_begins(optimizer: Any, args: Any, kwargs: Any) -> None:
    if is_available():
        active_box().optimizing = True


def optimizer_ends(optimizer: Any, args: Any, kwargs: Any) -> None:
    if not is_available():
        return
    box = active_box()
    box.optimizing = False
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, torch.Tensor) and (block := box.block_of(value)) is not None:
                block.allocation.kind = "optimizer state"
    for group in optimizer.param_groups:
        for p in group["params"]:  # a copy of a model's parameters, e.g. in float32, belongs to the optimizer
            block = box.block_of(p)
            if block is not None and block.allocation.kind == "temporaries":
                block.allocation.kind = "optimizer state"


if accelerator.FOUND.type == "cpu":
    accelerator.name_backend(sys.modules[__name__])
_library = torch.library.Library("_", "IMPL")
_library.fallback(_outside, "PrivateUse1")
