"""Streams and events, as torch.cuda has them. A virtual GPU has one queue, which all its streams share."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from mpcourse.virtual.gpus.box import active_box, box_here


class Stream:
    """A device's queue. Programs with several streams give the same values; their operations do not overlap."""

    def __init__(self, device: Any = None, priority: int = 0, **ignored: Any) -> None:
        box = active_box()
        self.device, self.priority = box.devices[box.gpu_index(device)], priority
        self.device_index, self.stream_id = self.device.index, 0

    def synchronize(self) -> None:
        """Let the host wait for the queue."""
        active_box().synchronize(self.device)

    def query(self) -> bool:
        """Return whether the queue is empty."""
        box = active_box()
        return box.now >= box.free_at[self.device_index]

    def is_capturing(self) -> bool:
        """Return False: virtual GPUs have no graphs."""
        return False

    def wait_stream(self, stream: "Stream") -> None:
        """Let what is enqueued here from now on wait for what is enqueued in another stream."""
        self._wait_for(active_box().free_at[stream.device_index])

    def wait_event(self, event: "Event") -> None:
        """Let what is enqueued here from now on wait for the event."""
        self._wait_for(event.seconds)

    def record_event(self, event: "Event | None" = None) -> "Event":
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> "Stream":
        self._entered = stream(self)
        self._entered.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.__exit__(*error)

    def _wait_for(self, seconds: float) -> None:
        free_at = active_box().free_at
        free_at[self.device_index] = max(free_at[self.device_index], seconds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.device == self.device

    def __hash__(self) -> int:
        return hash(self.device)


def current_stream(device: Any = None) -> Stream:
    return Stream(device)


def default_stream(device: Any = None) -> Stream:
    return Stream(device)


def set_stream(stream: Stream | None) -> None:
    if stream is not None:
        active_box().current = stream.device_index


@contextlib.contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """Make a plain "vgpu" mean the stream's device within this context. All operations are in its one queue."""
    box = active_box()
    before = box.current
    set_stream(stream)
    try:
        yield
    finally:
        box.current = before


class Event:
    """A point in a device's queue, as torch.cuda.Event: `record` it, wait, and ask for the milliseconds between two."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.enable_timing, self.seconds = enable_timing, 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Record the point after all that is in the queue of the stream, or of the current device."""
        box = active_box()
        self.seconds = max(box.now, box.free_at[box.current if stream is None else stream.device_index])

    def wait(self, stream: Stream | None = None) -> None:
        """Let what is enqueued from now on, in the stream or on the current device, wait for this event."""
        (Stream() if stream is None else stream).wait_event(self)

    def synchronize(self) -> None:
        active_box().wait_until(self.seconds, "synchronize")

    def query(self) -> bool:
        return active_box().now >= self.seconds

    def elapsed_time(self, end: "Event") -> float:
        """Return the milliseconds to `end`. Raises ValueError unless both events have enable_timing=True."""
        if not (self.enable_timing and end.enable_timing):
            raise ValueError("both events must be made with Event(enable_timing=True)")
        return (end.seconds - self.seconds) * 1e3


class _InBox(type):
    """torch.Stream and torch.Event, which in a box are those of its devices."""

    plain: type
    ours: type

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if box_here() is None:
            return cls.plain(*args, **kwargs)
        if cls.ours is Event and args and not isinstance(args[0], bool):
            args = args[1:]  # the device: an event belongs to the queue in which it is recorded
        kwargs.pop("device", None) if cls.ours is Event else None
        return cls.ours(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.plain | cls.ours)


StreamInBox = _InBox("Stream", (), {"plain": torch.Stream, "ours": Stream})
EventInBox = _InBox("Event", (), {"plain": torch.Event, "ours": Event})


_record_stream = torch.Tensor.record_stream


def record_stream(tensor: torch.Tensor, stream: Any) -> None:
    """Do nothing for a virtual stream: the box frees memory in the order of its one queue."""
    if not isinstance(stream, Stream):
        _record_stream(tensor, stream)
