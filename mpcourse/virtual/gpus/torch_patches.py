"""What a box replaces in torch: one table, in force while some thread is in a box, and not before or after.

In a thread that has not entered the box, each function calls torch's own.
"""

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.cuda.comm
import torch.utils.checkpoint
import torch.utils.data._utils.pin_memory
from torch.amp import GradScaler
from torch.autograd.function import BackwardCFunction
from torch.optim import optimizer

from mpcourse.virtual.gpus import (
    amp,
    autocast,
    autograd_patches,
    comm,
    encoder,
    foreach,
    generators,
    modes,
    pinned,
    storages,
    streams,
    unsupported,
    vgpu,
    vmap,
)
from mpcourse.virtual.gpus.as_cuda import cuda_patches
from mpcourse.virtual.gpus.box import Box, box_here

Patch = tuple[Any, str, Any]  # the owner, a module, a class or a dict; the name of its attribute or entry; its value


def _in_box(owner: Any, name: str, ours: Callable[..., Any]) -> Patch:
    """Return a patch that makes `owner.name` ours in a thread that has entered the box."""
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def function(*args: Any, **kwargs: Any) -> Any:
        return (plain if box_here() is None else ours)(*args, **kwargs)

    return owner, name, staticmethod(function) if isinstance(owner, type) else function


TABLE: list[Patch] = [
    # devices, streams and random numbers
    (torch.Tensor, "vgpu", vgpu.to_vgpu),
    (torch.nn.Module, "vgpu", vgpu.module_to_vgpu),
    (torch, "Stream", streams.StreamInBox),
    (torch, "Event", streams.EventInBox),
    (torch.Tensor, "record_stream", streams.record_stream),
    (torch, "Generator", generators.Generator),
    _in_box(torch.accelerator, "current_device_index", vgpu.current_device),
    _in_box(torch.accelerator, "current_device_idx", vgpu.current_device),
    _in_box(torch.accelerator, "set_device_index", vgpu.set_device),
    _in_box(torch.accelerator, "set_device_idx", vgpu.set_device),
    _in_box(torch.accelerator, "synchronize", vgpu.synchronize),
    _in_box(torch.accelerator, "current_stream", streams.current_stream),
    _in_box(torch.accelerator, "set_stream", streams.set_stream),
    # storages, files and threads
    (torch.UntypedStorage, "device", property(storages.virtual_device)),
    (torch.UntypedStorage, "resize_", storages.resize_),
    (torch.serialization, "default_restore_location", vgpu.restore_location),
    (threading.Thread, "start", modes.start_thread),
    (torch.utils.data._utils.pin_memory, "_pin_memory_loop", pinned.pin_memory_loop),
    # autograd
    (torch.autograd, "_engine_run_backward", autograd_patches.run_backward),
    (torch.autograd.Function, "apply", classmethod(autograd_patches.apply_and_note)),
    (BackwardCFunction, "apply", autograd_patches.backward_apply),
    (torch.autograd.graph.saved_tensors_hooks, "__enter__", autograd_patches.enter_hooks),
    (torch.utils.checkpoint._allowed_determinism_checks_to_fns, "default", autograd_patches.extract),
    # mixed precision
    _in_box(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
    _in_box(torch.cuda, "is_bf16_supported", vgpu.is_bf16_supported),
    (torch.autocast, "__enter__", amp.enter_region),
    (torch.autocast, "__exit__", amp.exit_region),
    (torch, "clear_autocast_cache", autocast.clear_cache),
    (GradScaler, "_maybe_opt_step", amp.maybe_step),
    (GradScaler, "update", amp.update_scale),
    (GradScaler, "get_scale", amp.get_scale),
    (GradScaler, "_get_growth_tracker", amp.get_tracker),
    (GradScaler, "load_state_dict", amp.load_state),
    # optimizers and modules
    (optimizer._global_optimizer_pre_hooks, "mpcourse", vgpu.optimizer_begins),
    (optimizer._global_optimizer_post_hooks, "mpcourse", vgpu.optimizer_ends),
    (torch._C, "_group_tensors_by_device_and_dtype", foreach.group_by_device),
    (torch.overrides, "has_torch_function", encoder.has_torch_function),
    *(
        _in_box(owner, ours.__name__, ours)
        for owner in (torch.nn.parallel.comm, torch.cuda.comm)
        for ours in (
            *(comm.broadcast, comm.broadcast_coalesced, comm.reduce_add, comm.reduce_add_coalesced, comm.scatter),
            comm.gather,
        )
    ),
    *(
        _in_box(sys.modules[module], "parallel_apply", comm.parallel_apply)
        for module in ("torch.nn.parallel", "torch.nn.parallel.data_parallel", "torch.nn.parallel.parallel_apply")
    ),
    _in_box(torch.nn.parallel._functions.Scatter, "forward", comm.scatter_forward),
    # what is refused
    *unsupported.PATCHES,
    *vmap.PATCHES,
]
_NOTHING = object()
_lock = threading.Lock()
_threads = 0  # number of threads in a box
_applied = contextlib.ExitStack()


@contextlib.contextmanager
def in_force() -> Iterator[None]:
    """Count this thread as in a box: the first such thread applies the table, and the last one takes it back."""
    global _threads
    with _lock:
        if _threads == 0:
            _applied.enter_context(replaced(TABLE))
        _threads += 1
    try:
        yield
    finally:
        with _lock:
            _threads -= 1
            if _threads == 0:
                _applied.close()


@contextlib.contextmanager
def opened(box: Box) -> Iterator[None]:
    """Let torch.cuda ask `box`, if that is wanted. This is no part of the table, so that either may end first."""
    with replaced(cuda_patches(box) if box.as_cuda else ()):
        yield


@contextlib.contextmanager
def replaced(patches: Iterable[Patch]) -> Iterator[None]:
    """Give each owner the value within this context; afterwards what it had before, even if that was no attribute."""
    before: list[Patch] = []
    try:
        for owner, name, value in patches:
            attributes = owner if isinstance(owner, dict) else vars(owner)
            before.append((owner, name, attributes.get(name, _NOTHING)))
            _put(owner, name, value)
        yield
    finally:
        for patch in reversed(before):
            _put(*patch)


def _put(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, dict):
        owner.pop(name) if value is _NOTHING else owner.update({name: value})
    elif value is _NOTHING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)
