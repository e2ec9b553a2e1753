"""The ledger of a virtual GPU's memory: what holds it, what kind it has, since when, and when it was fullest."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from mpcourse.virtual.gpus.allocator import CachingAllocator, Chunk
from mpcourse.virtual.line import Line, location
from mpcourse.virtual.specs import GPU

# In the order in which figures stack them: what stays comes first.
KINDS = (
    "parameters",
    "buffers",
    "optimizer state",
    "inputs",
    "gradients",
    "activations",
    "temporaries",
    "workspaces",
)


class Allocation:
    """What one storage holds on a device. A kind may be known only later: a gradient is one once it is in `.grad`."""

    __slots__ = ("chunk", "device", "dtype", "kind", "line", "name", "nbytes", "phase", "shape")

    def __init__(
        self,
        device: int,
        nbytes: int,
        kind: str,
        name: str,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        line: Line | None,
        phase: str,
    ) -> None:
        self.device, self.nbytes, self.kind, self.name = device, nbytes, kind, name
        self.shape, self.dtype, self.line, self.phase = shape, dtype, line, phase
        self.chunk: Chunk | None = None

    def __str__(self) -> str:
        where = f" at {location(self.line)}" if self.line else ""
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{size(self.nbytes)} {self.kind} {self.shape} {dtype} from {self.name}{where}"


@dataclass(frozen=True)
class Peak:
    """The moment at which a device held most.

    seconds: of the host; name, asked, phase: the operation; kinds: bytes.
    """

    nbytes: int
    seconds: float
    name: str
    asked: str
    phase: str
    kinds: dict[str, int]


class Ledger:
    """Every allocation on the devices of one box, in exact bytes, and what a caching allocator would reserve."""

    def __init__(self, gpus: list[GPU], record: bool, names: list[str]) -> None:
        self.gpus, self.record, self.names = gpus, record, names
        self.allocators = [CachingAllocator(gpu.memory - gpu.context) for gpu in gpus]
        self.used, self.most = [0] * len(gpus), [0] * len(gpus)
        self.live: dict[int, Allocation] = {}
        self.log: list[tuple[float, Allocation, int]] = []  # host seconds, allocation, +1 or -1
        self.peak_at = [0] * len(gpus)  # number of log entries up to and including each device's peak

    def allocate(self, allocation: Allocation, seconds: float) -> None:
        """Record an allocation. Raises torch.OutOfMemoryError where the device is full."""
        i = allocation.device
        if allocation.nbytes:  # CUDA's allocator gives nothing for 0 bytes
            allocation.chunk = self.allocators[i].allocate(allocation.nbytes)
        if allocation.nbytes and allocation.chunk is None:
            raise self.out_of_memory(i, allocation.nbytes)
        self.live[id(allocation)] = allocation
        self.used[i] += allocation.nbytes
        if self.record:
            self.log.append((seconds, allocation, 1))
        if self.used[i] > self.most[i]:
            self.most[i], self.peak_at[i] = self.used[i], len(self.log)

    def release(self, allocation: Allocation, seconds: float) -> None:
        """Record that the storage has been freed."""
        if self.live.pop(id(allocation), None) is None:
            return
        self.used[allocation.device] -= allocation.nbytes
        if allocation.chunk is not None:
            self.allocators[allocation.device].release(allocation.chunk)
        if self.record:
            self.log.append((seconds, allocation, -1))

    def free(self, device: int) -> int:
        """Return the bytes that an allocation could still get, if free memory were in one piece."""
        allocator = self.allocators[device]
        return allocator.capacity - allocator.allocated

    def out_of_memory(self, device: int, asked: int) -> torch.OutOfMemoryError:
        """Return the error, with the five biggest holders; it says so where enough is free, but not in one piece."""
        gpu, allocator, free = self.gpus[device], self.allocators[device], self.free(device)
        between = allocator.reserved - allocator.allocated
        pieces = (
            f"It is in pieces: {size(free - between)} that the caching allocator has not reserved, and {size(between)} "
            "between tensors in what it has. "
        )
        held = sorted((a for a in self.live.values() if a.device == device), key=lambda a: -a.nbytes)
        lines = [f"  {a}" for a in held[:5]]
        if held[5:]:
            lines.append(f"  {size(sum(a.nbytes for a in held[5:]))} in {len(held) - 5} more")
        return torch.OutOfMemoryError(
            f"{self.names[device]} is out of memory: {size(asked)} asked, {size(max(0, free))} free of "
            f"the {size(gpu.memory)} of a {gpu.name} ({size(gpu.context)} are its CUDA context's). "
            f"{pieces if free >= asked else ''}The biggest holders:\n"
            + "\n".join(lines or ["  none: the request alone is too large"])
        )

    def kinds(self, device: int) -> dict[str, int]:
        """Return the bytes held now, by kind."""
        return _by_kind(a for a in self.live.values() if a.device == device)

    def peak(self, device: int) -> Peak:
        """Return the moment of the peak since the last reset. Raises RuntimeError where the box does not record."""
        entries = [entry for entry in self._entries()[: self.peak_at[device]] if entry[1].device == device]
        held: dict[int, Allocation] = {}
        for _, allocation, sign in entries:
            if sign > 0:
                held[id(allocation)] = allocation
            else:
                held.pop(id(allocation), None)
        kinds = _by_kind(iter(held.values()), self.live)
        seconds, last, _ = entries[-1] if entries else (0.0, None, 0)
        if last is None:
            return Peak(0, 0.0, "", "", "", {})
        return Peak(self.most[device], seconds, last.name, location(last.line), last.phase, kinds)

    def history(self, device: int) -> Iterator[tuple[float, dict[str, int]]]:
        """Yield (host seconds, bytes by kind) after each change on `device`. The dict is the same object each time."""
        held: Counter[str] = Counter()
        for seconds, allocation, sign in self._entries():
            if allocation.device == device:
                held[_settled(allocation, self.live)] += sign * allocation.nbytes
                yield seconds, held

    def reset(self, seconds: float, device: int | None = None) -> None:
        """Forget the past: peaks begin at what is held now. `device`: forget only the peak of this one."""
        if device is None:
            self.log = [(seconds, a, 1) for a in self.live.values()] if self.record else []
        for i in range(len(self.gpus)) if device is None else [device]:
            self.most[i], self.peak_at[i] = self.used[i], len(self.log)
            allocator = self.allocators[i]
            allocator.max_allocated, allocator.max_reserved = allocator.allocated, allocator.reserved

    def _entries(self) -> list[tuple[float, Allocation, int]]:
        if not self.record:
            raise RuntimeError("this box keeps no record: make it with virtual_gpus(..., record=True)")
        return self.log


def _settled(allocation: Allocation, live: dict[int, Allocation]) -> str:
    """Return the kind, as it is known now. What backward made and left alive is a gradient: it frees all else."""
    if allocation.kind == "temporaries" and allocation.phase == "backward" and id(allocation) in live:
        return "gradients"
    return allocation.kind


def _by_kind(allocations: Iterator[Allocation], live: dict[int, Allocation] | None = None) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for a in allocations:
        totals[_settled(a, live) if live is not None else _settled(a, {id(a): a})] += a.nbytes
    return {kind: totals[kind] for kind in KINDS if totals[kind]}


def size(nbytes: float) -> str:
    """Write a size: `512 B`, `3.00 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024 or unit == "GiB":
            break
        nbytes /= 1024
    return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.2f} {unit}"
