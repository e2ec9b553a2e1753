"""A box of virtual GPUs: devices with memory, clocks and links, in one process and without a GPU.

A device is a tag on a storage. Tensors stay ordinary CPU tensors (or meta tensors, which hold nothing, in a dry run; or
tensors of one real GPU), so values, autograd, nn.Module and optimizers are torch's own. Two modes (modes.py) see every
call: they answer `.device`, move tensors, refuse mixed devices, and make the box keep its ledger (ledger.py) and its
clock (clock.py).
"""

import contextlib
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import torch

from mpcourse.virtual.gpus.clock import HOST, Clock
from mpcourse.virtual.gpus.ledger import Allocation, Ledger
from mpcourse.virtual.gpus.stale_tensors import left_message, make_stale, make_usable
from mpcourse.virtual.line import Line
from mpcourse.virtual.specs import GPU, Link, find_gpu, find_link, link_between

CPU = torch.device("cpu")
TAG = "mpcourse_block"  # the attribute of a storage

NO_BOX = "this thread has no box: enter it here too, `with box.here():`"

_active: "Box | None" = None  # the one global of this package
_entering = threading.Lock()
_here = threading.local()


class Block:
    """The tag on a storage: its device, and when what was last written to it will be ready."""

    __slots__ = ("allocation", "box", "index", "ready")

    def __init__(self, box: "Box", allocation: Allocation) -> None:
        self.box, self.allocation, self.index, self.ready = box, allocation, allocation.device, 0.0

    def __del__(self) -> None:  # the storage has been freed
        self.box.ledger.release(self.allocation, self.box.now)


def block_index(block: Block | None) -> int:
    """Return the index of the device that a storage with this tag is on; HOST for a storage without one."""
    return HOST if block is None else block.index


class Box(Clock):
    """Virtual GPUs and the links between them, made by `virtual_gpus`. A context manager, which may be entered again.

    opened: makes a context that changes the whole process while the box is entered.
    entered: makes a context in which a thread sees the devices.
    Both use this class, so they are passed to it and not defined here.
    n: number of devices, 1 or more.
    spec: their hardware, by name or as a GPU, one for all or one for each.
    link, host_link: between any two devices, and between the CPU and each; by name or as a Link; None: what such GPUs
    have.
    dry: tensors on the devices hold no data.
    record: events and allocations are kept.
    overlap: copies between GPUs have a stream of their own.
    as_cuda: the devices are "cuda:0" and on; otherwise "vgpu:0" and on.
    now: seconds on the host's clock.
    events: all that took time, as `Event`s.
    ledger: all that took memory.
    """

    def __init__(
        self,
        opened: "Callable[[Box], contextlib.AbstractContextManager[None]]",
        entered: "Callable[[Box], contextlib.AbstractContextManager[None]]",
        n: int,
        spec: str | GPU | Sequence[str | GPU],
        link: str | Link | None,
        host_link: str | Link | None,
        dry: bool,
        record: bool,
        overlap: bool,
        as_cuda: bool = False,
    ) -> None:
        if n < 1:
            raise ValueError(f"a box has one device or more, not {n}")
        specs = [spec] * n if isinstance(spec, str | GPU) else list(spec)
        if len(specs) != n:
            raise ValueError(f"{n} devices need one spec for all or {n} specs, not {len(specs)}")
        gpus = [find_gpu(s) for s in specs]
        self.devices = [torch.device("cuda" if as_cuda else "vgpu", i) for i in range(n)]
        host_links = [find_link(host_link or gpu.host_link) for gpu in gpus]
        super().__init__(gpus, [str(d) for d in self.devices], link_between(gpus, link), host_links, record, overlap)
        self.dry, self.as_cuda = dry, as_cuda
        self.backing = torch.device("meta" if dry else "cpu")  # which holds what is on the devices
        self.ledger = Ledger(self.gpus, record, self.names)
        self.current = 0  # the device of a plain "vgpu"
        self.workspaces: dict[tuple[int, bool], Block] = {}
        self.optimizing = False
        self.stand_in: float | None = None  # what `item()` returns in a dry box, where a value is set
        # In a dry box that assumes values, item() of all() is True and of any() False, and vmap runs: otherwise they
        # raise. predict and plan set it.
        self.assumes = False
        self.stands_in = False  # whether a warning said that zeros replace a dry box's values
        self._stack = contextlib.ExitStack()
        self._stale: list[weakref.ref[torch.Tensor]] = []  # tensors that were on the devices when the box was left
        self._opened, self._entered = opened, entered

    # -- which device --

    def block_of(self, tensor: torch.Tensor) -> Block | None:
        """Return the tag of a tensor's storage, or None for a tensor on the host.

        tensor: of any kind.
        Raises RuntimeError for another box's tensor.
        """
        try:
            block = getattr(tensor.untyped_storage(), TAG, None)
        except NotImplementedError:  # a sparse, nested or wrapped tensor
            from mpcourse.virtual.gpus.unsupported import check_transforms

            check_transforms([tensor])
            return None
        except ValueError:  # a lazy module's parameter, which has no shape yet
            with torch._C.DisableTorchFunctionSubclass():
                block = getattr(tensor.untyped_storage(), TAG, None)
        if block is not None and block.box is not self:
            raise RuntimeError(left_message(tensor))
        return block

    def blocks_of(self, tensors: Sequence[torch.Tensor]) -> list[Block | None]:
        """Return the tag of each tensor's storage, as fast as possible, because this runs before every operation.

        tensors: of any kind.
        Raises RuntimeError for another box's tensor.
        """
        try:
            blocks = [getattr(t.untyped_storage(), TAG, None) for t in tensors]
        except (NotImplementedError, ValueError):  # one of them has no storage
            return [self.block_of(t) for t in tensors]
        for i, block in enumerate(blocks):
            if block is not None and block.box is not self:
                self.block_of(tensors[i])  # raises the error
        return blocks

    def index_of(self, device: Any) -> int:
        """Return the index of a device of this box; HOST for the CPU.

        device: as torch names it.
        Raises RuntimeError for a device that the box does not have.
        """
        device = torch.device(device)
        if device.type == "cpu":
            return HOST
        if device.type != "vgpu" and not (device.type == "cuda" and self.as_cuda):
            also = "; virtual_gpus(..., as_cuda=True) has them answer to cuda" if device.type == "cuda" else ""
            raise RuntimeError(f"{device} is not a device of this box: it has {', '.join(self.names)} and cpu{also}")
        index = self.current if device.index is None else device.index
        if index >= len(self.devices):
            raise RuntimeError(
                f"invalid device ordinal: {device.type}:{index}, but this box has {', '.join(self.names)}"
            )
        return index

    def gpu_index(self, device: Any = None) -> int:
        """Return the index of a GPU.

        device: as torch names it, a number, or None for the current one.
        Raises RuntimeError for a device that the box does not have, ValueError for the CPU.
        """
        if device is None:
            return self.current
        index = self.index_of(torch.device("vgpu", device) if isinstance(device, int) else device)
        if index == HOST:
            raise ValueError(f"expected a {self.devices[0].type} device, but got {device}")
        return index

    def device_at(self, index: int) -> torch.device:
        """Return the device of an index.

        index: from 0 on, or HOST.
        """
        return CPU if index == HOST else self.devices[index]

    # -- memory --

    def place(self, tensor: torch.Tensor, index: int, kind: str, name: str, line: Line | None, phase: str) -> Block:
        """Put a tensor's untagged storage on a device; return its tag.

        tensor: its storage is placed.
        index: of the device.
        kind: one of `ledger.KINDS`.
        name: as the ledger shows it.
        line: of the user's program, if known.
        phase: of a training step.
        Raises torch.OutOfMemoryError where the device is full.
        """
        storage = tensor.untyped_storage()
        nbytes = storage.nbytes()
        block = self._allocate(Allocation(index, nbytes, kind, name, tuple(tensor.shape), tensor.dtype, line, phase))
        setattr(storage, TAG, block)
        return block

    def _allocate(self, allocation: Allocation) -> Block:
        self.ledger.allocate(allocation, self.now)
        return Block(self, allocation)

    def workspace(self, index: int, backward: bool) -> None:
        """Allocate the workspace that cuBLAS takes at a device's first matrix product, and keeps.

        index: of the device.
        backward: whether it is the backward pass, which on GPUs runs in a thread of its own, with its own cuBLAS handle
        and workspace.
        """
        nbytes, key = self.gpus[index].workspace, (index, backward)
        if key not in self.workspaces and nbytes:
            made = Allocation(index, nbytes, "workspaces", "cuBLAS", (nbytes,), torch.uint8, None, "")
            self.workspaces[key] = self._allocate(made)

    def synchronize(self, device: Any = None) -> float:
        """Wait until devices and links have finished; return the seconds on the clock then.

        device: as torch names it; None: all devices and links.
        """
        if device is None:
            self.wait_until(max([*self.free_at, *self.link_free_at.values()]), "synchronize")
        elif (index := self.index_of(device)) != HOST:
            self.wait_until(self.free_at[index], "synchronize")
        return self.now

    def reset(self) -> None:
        """Forget events and peaks, but not tensors, so that what follows is measured alone. Waits for all devices."""
        self.synchronize()
        self.events.clear()
        self.ledger.reset(self.now)

    # -- entering --

    def __enter__(self) -> "Box":
        global _active
        with _entering:
            if _active is self:
                raise RuntimeError("this box is entered already: in another thread, enter it with `with box.here():`")
            if _active is not None:
                raise RuntimeError("a box inside a box: leave the outer one first, or give it more devices")
            with contextlib.ExitStack() as stack:
                if self.dry and not torch.__future__.get_swap_module_params_on_conversion():
                    # So that module.to("vgpu:0") keeps each Parameter's identity although its data become meta tensors:
                    # an optimizer made before still holds it, and tied weights stay tied.
                    torch.__future__.set_swap_module_params_on_conversion(True)
                    stack.callback(torch.__future__.set_swap_module_params_on_conversion, False)
                stack.enter_context(self._opened(self))
                stack.enter_context(self.here())
                if "torch._dynamo" in sys.modules:  # what was compiled before runs operation by operation
                    stack.enter_context(torch.compiler.set_stance("force_eager"))
                self._stack = stack.pop_all()
            _active = self
        make_usable(self._stale)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _active
        _active = None
        self._stack.close()
        # In a dry box a tensor that is left is one of torch's meta tensors, and holds no data that could be misused.
        if not self.dry and len(self.ledger.live) > len(self.workspaces):  # some tensors are left
            self._stale = make_stale(self, TAG)

    def is_here(self) -> bool:
        """Return whether this thread has entered the box."""
        return box_here() is self

    @contextlib.contextmanager
    def here(self) -> Iterator["Box"]:
        """Make this thread see the devices of a box that another thread has entered."""
        if box_here() is not None:
            raise RuntimeError("this thread has a box already")
        with self._entered(self):
            _here.box = self
            try:
                yield self
            finally:
                _here.box = None


def box_here() -> Box | None:
    """Return the box that this thread has entered, or None."""
    return getattr(_here, "box", None)


def entered_anywhere() -> Box | None:
    """Return the box that some thread of this process has entered, or None."""
    return _active


def active_box() -> Box:
    """Return the box that this thread has entered. Raises RuntimeError where there is none."""
    box = box_here()
    if box is None:
        raise RuntimeError(NO_BOX if _active else "there is no box: `with virtual_gpus(2):` makes virtual GPUs")
    return box
