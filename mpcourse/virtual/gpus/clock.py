"""The clock of a box: when the host, each device and each link did what.

It has lanes, as CUDA has. The host enqueues operations and pays for each; a device runs its queue in order; each link
carries one copy at a time in each direction. An operation starts when it has been enqueued, its device is free and its
inputs are ready.
"""

from mpcourse.virtual.gpus.cost import Operation
from mpcourse.virtual.line import Line, location
from mpcourse.virtual.specs import GPU, Host, Link
from mpcourse.virtual.timeline import Event

HOST = -1  # the index of "cpu"


class Clock:
    """Lanes of time.

    now: seconds on the host's clock. free_at: when each device has finished its queue, in seconds.
    """

    def __init__(
        self,
        gpus: list[GPU],
        names: list[str],
        link: Link,
        host_links: list[Link],
        record: bool,
        overlap: bool,
    ) -> None:
        self.gpus, self.names, self.link, self.host_links, self.host = gpus, names, link, host_links, Host()
        self.record, self.overlap = record, overlap
        self._events: list[Event] = []
        self._billed: list[tuple] = []  # operations that are not among the events yet
        self.now = 0.0
        self.free_at = [0.0] * len(gpus)
        self.link_free_at: dict[tuple[int, int], float] = {}

    def bill(
        self, op: Operation, index: int, ready: float, seconds: float, nbytes: int, flops: int, line: Line | None,
        phase: str,
    ) -> float:  # fmt: skip
        """Enqueue an operation on a device, to start after `ready`; return the time at which it ends."""
        now = self.now
        self.now = issued = now + self.gpus[index].launch
        start = max(issued, self.free_at[index], ready)
        self.free_at[index] = end = start + seconds
        if self.record:  # as little as possible, because this runs between a program's operations
            self._billed.append((index, op.name, now, issued, start, end, nbytes, flops, line, phase))
        return end

    def bill_host(self, op: Operation, seconds: float, nbytes: int, flops: int, line: str, phase: str) -> None:
        """Let the host compute; it enqueues nothing meanwhile."""
        end = self.now + seconds
        if self.record:
            self.events.append(Event("cpu", op.name, "compute", self.now, end, self.now, nbytes, flops, line, phase))
        self.now = end

    def bill_copy(
        self, source: int, target: int, nbytes: int, ready: float, waits: bool, pageable: bool, line: str, phase: str
    ) -> float:
        """Copy between two devices, or a device and the host; return the time at which the copy ends.

        As in torch on CUDA, a copy between two GPUs is in the queues of both, so neither computes meanwhile. `overlap`
        gives it a stream of its own, which waits for the source's work so far, and both GPUs compute meanwhile. waits:
        whether the host waits, too. pageable: whether the host's memory is not pinned.
        """
        gpu = max(source, target)
        link = self.host_links[gpu] if HOST in (source, target) else self.link
        launch = self.gpus[gpu].launch
        issued = self.now + launch
        own_stream = self.overlap and HOST not in (source, target)
        queues = [source] if own_stream else [i for i in (source, target) if i != HOST]
        start = max(issued, ready, self.link_free_at.get((source, target), 0.0), *(self.free_at[i] for i in queues))
        end = start + link.seconds(nbytes, pageable)
        self.link_free_at[source, target] = end
        for i in queues if not own_stream else []:
            self.free_at[i] = end
        if self.record:
            lane = f"{self._name(source)} -> {self._name(target)}"
            self.events.append(Event("cpu", "copy", "enqueue", self.now, issued, issued, 0, 0, line, phase))
            self.events.append(Event(lane, "copy", "copy", start, end, issued, nbytes, 0, line, phase))
        self.now = issued
        if waits:
            self.wait_until(end, "copy", line)
        return end

    def wait_until(self, seconds: float, name: str, line: str = "") -> None:
        """Let the host wait."""
        if seconds > self.now:
            if self.record:
                self.events.append(Event("cpu", name, "wait", self.now, seconds, self.now, asked=line))
            self.now = seconds

    @property
    def events(self) -> list[Event]:
        """All that took time, in the order in which the host enqueued it. Deleting an event here forgets it."""
        for index, name, now, issued, start, end, nbytes, flops, line, phase in self._billed:
            asked = location(line)
            self._events.append(Event("cpu", name, "enqueue", now, issued, issued, 0, 0, asked, phase))
            self._events.append(
                Event(self.names[index], name, "compute", start, end, issued, nbytes, flops, asked, phase)
            )
        self._billed.clear()
        return self._events

    @property
    def copies(self) -> list[Event]:
        """All copies so far, in the order in which they were enqueued."""
        return [e for e in self.events if e.kind == "copy"]

    def _name(self, index: int) -> str:
        return "cpu" if index == HOST else self.names[index]
