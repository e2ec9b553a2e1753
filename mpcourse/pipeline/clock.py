"""When work on a device began and ended: by the box's clock on a virtual GPU, by events on a real one."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from mpcourse.virtual import Event, active_box, span


class _HostClock:
    """A clock for devices on which a call has done its work when it returns, such as the CPU."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self.zero = time.perf_counter()

    def time(self, device: torch.device, call: Callable, *args: Any) -> tuple[Any, Any]:
        """Return what call(*args) returns, and a mark to `read` later."""
        start = time.perf_counter()
        result = call(*args)
        return result, (start - self.zero, time.perf_counter() - self.zero)

    def read(self, mark: Any) -> tuple[float, float]:
        """Return the first start and the last end of what was marked, in seconds."""
        return mark

    def copies(self) -> list[Event]:
        """Return the copies between devices since the clock was made, where they are known."""
        return []


class _BoxClock(_HostClock):
    """A clock for virtual GPUs, whose box records all that they do."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self.box, self.zero = active_box(), 0.0
        self.first = len(self.box.events)

    def time(self, device: torch.device, call: Callable, *args: Any) -> tuple[Any, Any]:
        index = self.box.index_of(device)
        idle, first = self.box.free_at[index], len(self.box.events)
        result = call(*args)
        own = [e for e in self.box.events[first:] if e.kind == "compute" and e.lane == str(device)]
        # Without a record (record=False), or where nothing was computed: from when the device was free.
        return result, span(own) if own else (idle, self.box.free_at[index])

    def copies(self) -> list[Event]:
        return [e for e in self.box.events[self.first :] if e.kind == "copy"]


class _StreamClock(_HostClock):
    """A clock for GPUs: events in the devices' streams, read once the streams have done their work."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self.zeros = {}
        for device in devices:
            torch.get_device_module(device).synchronize(device)
        for device in devices:  # all clocks begin when all devices are idle
            self.zeros[device] = self._event(device)

    def time(self, device: torch.device, call: Callable, *args: Any) -> tuple[Any, Any]:
        start = self._event(device)
        result = call(*args)
        return result, (device, start, self._event(device))

    def read(self, mark: Any) -> tuple[float, float]:
        device, start, end = mark
        end.synchronize()
        zero = self.zeros[device]
        return zero.elapsed_time(start) / 1e3, zero.elapsed_time(end) / 1e3

    @staticmethod
    def _event(device: torch.device) -> torch.Event:
        event = torch.Event(device, enable_timing=True)
        event.record(torch.get_device_module(device).current_stream(device))
        return event


def clock_of(devices: Sequence[torch.device]) -> _HostClock:
    """Return the clock of some devices: the box's for virtual GPUs, events in the streams for real ones.

    devices: one or more, all of one kind.
    """
    kinds = {"cpu": _HostClock, "vgpu": _BoxClock}
    return kinds.get(devices[0].type, _StreamClock)(devices)
