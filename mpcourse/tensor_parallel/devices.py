"""Tensor parallelism over the virtual GPUs of one process: each has a rank, and collective calls go from GPU to GPU."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import torch

from mpcourse.collectives import cost
from mpcourse.common.comm import Comm
from mpcourse.virtual import Box, active_box, run
from mpcourse.virtual.gpus.kernels import paused
from mpcourse.virtual.timeline import Event

Tensor = torch.Tensor
T = TypeVar("T")
Seconds = Callable[[int, float], float]


class DeviceComm:
    """The communicator of a rank that has a virtual GPU, like NCCL's: tensors do not pass through the host.

    comm: a virtual rank's; its ranks have the box's GPUs in order.
    box: has a GPU for each rank.
    shared: one dict for all ranks.
    members: the GPUs of this communicator's ranks.
    seconds: takes a number of ranks and of bytes, returns the seconds of an all-reduce.
    device: this rank's GPU.

    Each call below is made by all ranks, takes a tensor of this rank's GPU and returns a new one there. It begins when
    the last GPU comes to it, and takes `seconds` for an all-reduce, or half of them for an all-gather or a
    reduce-scatter. The GPU's queue waits for it; with `wait=False` only what reads the result waits. Every rank has a
    host of its own, as a process has. All other methods are those of `comm`.
    """

    def __init__(
        self, comm: Comm, box: Box, shared: dict[Any, Any], members: tuple[int, ...], seconds: Seconds
    ) -> None:
        self.comm, self.box, self.shared, self.members, self.seconds = comm, box, shared, members, seconds
        self.rank, self.size = comm.rank, comm.size
        self.index = members[self.rank]
        self.device = box.devices[self.index]

    def all_reduce(self, x: Tensor, op: Any = None, wait: bool = True) -> Tensor:
        """Return the sum of x over all ranks.

        x: of one shape and dtype on all ranks.
        op: in place of the sum, an operation on two tensors.
        wait: this GPU's queue waits for the result.
        """

        def total(xs: list[Tensor]) -> Tensor:
            out = xs[0].clone()
            for other in xs[1:]:
                out = out.add_(other) if op is None else op(out, other)
            return out

        return self._call("all-reduce", x, x.nbytes, 1.0, total, wait)

    def all_gather(self, x: Tensor, wait: bool = True) -> Tensor:
        """Return the rows of all ranks.

        x: this rank's rows, of one shape and dtype on all ranks.
        wait: this GPU's queue waits for the result.
        """
        return self._call("all-gather", x, x.nbytes * self.size, 0.5, torch.cat, wait)

    def reduce_scatter(self, x: Tensor, wait: bool = True) -> Tensor:
        """Return this rank's rows of the sum of x over all ranks.

        x: (rows, ...), of one shape and dtype on all ranks.
        wait: this GPU's queue waits for the result.
        """

        def own(xs: list[Tensor]) -> Tensor:
            first, *others = [each.chunk(self.size)[self.rank] for each in xs]
            out = first.clone()
            for other in others:
                out += other
            return out

        return self._call("reduce-scatter", x, x.nbytes, 0.5, own, wait)

    def all_to_all(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Return what each rank has for this one.

        parts: a tensor for each rank, of one dtype.
        """
        with self._own_host():
            sizes = self.comm.allgather([part.shape for part in parts])

        def mine(xs: list[Tensor]) -> Tensor:
            own = [x.split([shape.numel() for shape in of])[self.rank] for x, of in zip(xs, sizes, strict=True)]
            return torch.cat(own)

        flat = torch.cat([part.detach().reshape(-1) for part in parts])
        arrived = self._call("all-to-all", flat, flat.nbytes, 0.5, mine, True)
        shapes = [of[self.rank] for of in sizes]
        pieces = arrived.split([shape.numel() for shape in shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def messages(self) -> "_DeviceMessages":
        """Return messages to and from each other rank, like `Messages` of `collectives.tensors`. No queue waits."""
        return _DeviceMessages(self)

    def Split(self, color: int = 0, key: int = 0) -> "DeviceComm":
        """Make a communicator of the ranks with this rank's color, as MPI does."""
        with self._own_host():
            part = self.comm.Split(color, key)
            members = tuple(part.allgather(self.index))
        return DeviceComm(part, self.box, self.shared, members, self.seconds)

    def synchronize(self) -> float:
        """Wait until the GPUs of all ranks have finished; return the seconds on every rank's clock then."""
        there = self.shared.setdefault(self.members, {})
        there[self.rank] = max(self.box.now, self.box.free_at[self.index])
        self.comm.Barrier()
        seconds = max(there[rank] for rank in range(self.size))
        self.comm.Barrier()
        self.box.wait_until(seconds, "synchronize")
        self.box.now = seconds
        return seconds

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.comm, name)
        if not callable(method):
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._own_host():
                return method(*args, **kwargs)

        return call

    def _call(
        self, name: str, x: Tensor, nbytes: int, part: float, make: Callable[[list[Tensor]], Tensor], wait: bool
    ) -> Tensor:
        """Meet the other ranks, and make this rank's result of all tensors.

        nbytes: size of the whole. part: of an all-reduce's seconds.
        """
        box, place = self.box, self.index
        issued = box.now + box.gpus[place].launch
        there = self.shared.setdefault(self.members, {})
        there[self.rank] = (x, max(issued, box.free_at[place], self.shared.get(place, 0.0)))
        with self._own_host():
            self.comm.Barrier()
            xs, ready = zip(*(there[rank] for rank in range(self.size)), strict=True)
            with paused():
                out = make(list(xs))
            start = max(ready)
            del xs  # before other ranks run: a rank that waits for its turn must not keep their tensors
            self.comm.Barrier()
            del there[self.rank]
        end = start + part * self.seconds(self.size, nbytes)
        box.place(out, place, "activations", name, None, phase()).ready = end
        self.shared[place] = end
        if wait:
            box.free_at[place] = max(box.free_at[place], end)
        if box.record:
            box.events.append(Event("cpu", name, "enqueue", box.now, issued, issued, 0, 0, "", phase()))
            sent = int(2 * part * nbytes * (self.size - 1) / self.size)
            lane = f"{box.names[place]} links"
            box.events.append(Event(lane, name, "copy", start, end, issued, sent, 0, "", phase()))
        box.now = issued
        return out

    @contextlib.contextmanager
    def _own_host(self) -> Iterator[None]:
        """Let other ranks run, and come back to this rank's own host, whose clock they do not move."""
        now = self.box.now
        try:
            yield
        finally:
            self.box.now = now


class _DeviceMessages:
    """Messages from GPU to GPU. A GPU sends one after the other, at the bandwidth of the link."""

    def __init__(self, comm: DeviceComm) -> None:
        self.comm = comm
        self.leaving: list[Any] = []

    def send(self, x: Tensor, rank: int) -> None:
        """Begin to send x as soon as its GPU has computed it."""
        comm, box, place = self.comm, self.comm.box, self.comm.index
        issued = box.now + box.gpus[place].launch
        block = box.block_of(x)
        start = max(issued, comm.shared.get(place, 0.0), block.ready if block is not None else 0.0)
        of_link = cost.of_link(box.link)
        end = start + of_link.alpha + x.nbytes * of_link.beta
        comm.shared[place] = end
        comm.shared.setdefault((comm.members, comm.rank, rank), []).append((x, end))
        if box.record:
            lane = f"{box.names[place]} links"
            box.events.append(Event(lane, "message", "copy", start, end, issued, x.nbytes, 0, "", phase()))
        box.now = issued
        self.leaving.append(comm.isend(None, rank))

    def receive(self, rank: int) -> Tensor:
        """Return the message of a rank. What reads it waits for it."""
        comm = self.comm
        comm.recv(source=rank)
        x, arrived = comm.shared[comm.members, rank, comm.rank].pop(0)
        with paused():
            out = x.clone()
        comm.box.place(out, comm.index, "activations", "message", None, phase()).ready = arrived
        return out

    def __enter__(self) -> "_DeviceMessages":
        return self

    def __exit__(self, *error: object) -> None:
        with self.comm._own_host():
            for request in self.leaving:
                request.wait()


def phase() -> str:
    """Return "backward" within a backward pass, else "forward"."""
    return "backward" if torch._C._current_graph_task_id() != -1 else "forward"


def over_devices(program: Callable[[DeviceComm], T], seconds: Seconds | None = None) -> list[T]:
    """Run a program once for each GPU of the entered box, all together; return the results in the GPUs' order.

    program: takes this rank's communicator, whose `device` is its GPU. `mpcourse.tensor_parallel` takes it as it takes
    the communicator of a process. Its collective calls go from GPU to GPU.
    seconds: takes a number of ranks and of bytes, returns the seconds of an all-reduce, e.g. one over several machines,
    `Machines.sum_over` of `mpcourse.plan`; None: of a ring over the box's link (`mpcourse.collectives.cost.of_link`).
    Messages between two GPUs (overlapped.py) always go over the box's link.

        with virtual_gpus(2, "A100-SXM4", "NVLink 3", dry=True) as box:
            over_devices(lambda comm: parallel_gpt(SMALL, comm, device=comm.device)(tokens.to(comm.device)))
            print(box.synchronize(), torch.vgpu.max_memory_allocated(0))

    Raises RuntimeError where no box is entered, and whatever the program raises.
    """
    box = active_box()
    ring = partial(cost.seconds, "ring", cost=cost.of_link(box.link))
    shared: dict[Any, Any] = {}
    begin = box.now
    ended = []

    def one(comm: Comm) -> T:
        with box.here():
            box.now = begin
            try:
                return program(DeviceComm(comm, box, shared, tuple(range(comm.size)), seconds or ring))
            finally:
                ended.append(box.now)

    try:
        return run(one, len(box.devices)).results
    finally:
        box.now = max([begin, *ended])
