"""`run(program, size)`: the `mpirun -np size` of virtual ranks."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from mpcourse.common.comm import Comm
from mpcourse.common.errors import RankFailed
from mpcourse.virtual.ranks import mpi
from mpcourse.virtual.ranks import world as _world
from mpcourse.virtual.ranks.comm import VirtualComm
from mpcourse.virtual.ranks.errors import ClusterError
from mpcourse.virtual.ranks.place import raised_at
from mpcourse.virtual.ranks.topology import Topology, topology_of
from mpcourse.virtual.ranks.world import World
from mpcourse.virtual.specs import Link
from mpcourse.virtual.timeline import Event

PHASES = ("forward", "backward", "optimizer")  # of a training step, as in the events of virtual GPUs


@dataclass(frozen=True)
class VirtualRun:
    """What a program did on virtual ranks.

    results: what the program returned, by rank.
    clock: when each rank ended, in seconds of virtual time.
    """

    results: list[Any]
    clock: list[float]
    _world: World

    @property
    def seconds(self) -> float:
        """Time at which the last rank ended."""
        return max(self.clock)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.clock)

    @functools.cached_property
    def traffic(self) -> np.ndarray:
        """Bytes of messages from each row's rank to each column's; int64, (size, size), without collective calls."""
        return self._matrix(lambda nbytes: nbytes)

    @functools.cached_property
    def messages(self) -> np.ndarray:
        """Number of messages from each row's rank to each column's; int64, (size, size)."""
        return self._matrix(lambda nbytes: 1)

    @property
    def collectives(self) -> list[list[str]]:
        """The names of the collective calls that each rank made, in their order."""
        return [[call.name for call in calls] for calls in self._world.collectives]

    @functools.cached_property
    def events(self) -> list[Event]:
        """Every message ("rank 0 -> rank 1"), and what each rank computed and where it waited ("rank 0")."""
        location = self._world.location
        events = [
            Event(f"rank {a} -> rank {b}", f"tag {tag}", "copy", start, end, posted, nbytes, asked=location(line))
            for a, b, tag, nbytes, posted, start, end, line, _ in self._world.matching.received()
        ]
        events += [
            Event(f"rank {rank}", name, kind, start, end, start, phase=name if name in PHASES else "")
            for rank, name, kind, start, end in _rows(self._world.spans, 5)
        ]
        return sorted(events, key=lambda e: (e.start, e.lane))

    def _matrix(self, weight: Callable[[int], int]) -> np.ndarray:
        matrix = np.zeros((self.size, self.size), np.int64)
        for source, target, _, nbytes, *_ in self._world.matching.received():
            matrix[source, target] += weight(nbytes)
        return matrix


def run(
    program: Callable[[Any], Any],
    size: int,
    link: str | Link | Topology = "10 GbE",
    *,
    eager: int = 0,
    record: bool = True,
    max_polls: int = 25_000,
) -> VirtualRun:
    """Call a program on each of some virtual ranks, in this process; return what they did.

    program: called with a communicator on each rank. The communicator has mpi4py's methods, so that the same program
    takes MPI.COMM_WORLD; `from mpcourse.virtual import MPI` gives the names that belong to it (MPI.SUM, MPI.Request).
    size: ranks, 1 or more.
    link: between any two ranks, a name of `mpcourse.virtual.LINKS` or a Link; or a Topology.
    eager: a Send of fewer bytes does not wait for its receiver; 0: each Send waits, so that no program works by luck.
    record: keep what `VirtualRun.events` shows.
    max_polls: how often a rank may call Test or Iprobe without success while no rank sends or receives anything. After
    that the
        rank counts as waiting, and when all ranks wait, the run is a deadlock.

    Each rank has its own random numbers (torch's and numpy's), and its own clock, which messages, collective calls and
    `compute` advance.
    Raises what the first failing rank raised, with notes that give its number and line, and where the others wait. The
    others continue until they wait for each other, as under mpirun, for at most two seconds. Raises ClusterError,
    or its subclass Deadlock, for mistakes in what ranks send each other; no rank continues after that. If no rank has
    gone on for five seconds, and none computes or sleeps, a ClusterError says where each rank is. Raises RuntimeError
    within a virtual rank; ValueError for numbers that make no sense, or a topology of another number of ranks.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"a run needs 1 rank or more, not {size!r}")
    if _world._running is not None:
        raise RuntimeError("virtual ranks cannot start virtual ranks")
    if eager < 0:
        raise ValueError(f"eager is a number of bytes, not {eager}")
    if max_polls < 1:
        raise ValueError(f"a rank may poll once or more, not {max_polls} times")
    world = World(size, topology_of(link, size), eager, record, max_polls)
    everyone = tuple(range(size))
    world.comms = [VirtualComm._of(world, 0, everyone, rank, "MPI_COMM_WORLD") for rank in everyone]
    world.selves = [VirtualComm._of(world, 1 + rank, (rank,), 0, "MPI_COMM_SELF") for rank in everyone]
    world.run(program)
    if world.errors or world.raised:
        _report(world)
    if world.failure is not None:  # raised in a thread of a rank that itself reported nothing afterwards
        raise world.failure
    _left_over(world)
    return VirtualRun(world.results, list(world.clock), world)


def compute(comm: Comm, seconds: float, phase: str = "") -> None:
    """Let a virtual rank work for some time by itself. On real ranks this does nothing: real work takes time.

    comm: mpi4py's communicator, or a virtual rank's; any of its ranks may call this.
    seconds: of virtual time.
    phase: of a training step, for its events: "forward", "backward", "optimizer", or any other name.
    """
    if isinstance(comm, VirtualComm):
        comm.compute(seconds, phase)


def mpi_of(comm: Comm) -> Any:
    """Return the module whose names belong to a communicator: `MPI.SUM` of virtual ranks, or mpi4py's.

    comm: mpi4py's communicator, or a virtual rank's; any of its ranks may call this.
    """
    if isinstance(comm, VirtualComm):
        return mpi
    from mpi4py import MPI  # imported only now, because it makes this process a rank

    return MPI


def _report(world: World) -> NoReturn:
    if world.raised is None:  # raise the error of all ranks, and not what one of them made of it
        errors = list(world.errors.values())
        raise next((error for error in errors if isinstance(error, ClusterError)), errors[0])
    rank, error = world.raised
    if rank >= 0 and not isinstance(error, RankFailed):
        error.add_note(f"on virtual rank {rank} of {world.size}, {raised_at(error)}")
        for _, where in sorted(world.others.items()):
            error.add_note(where)
    raise error


def _left_over(world: World) -> None:
    """Raise ClusterError for what ranks have begun and not finished."""
    left = world.matching.left()
    if left:
        s = left[0]
        raise ClusterError("never received", f"{world.who(s)} was never received{_more(len(left))}")
    opened = [q for requests in world.open for q in requests]
    if opened:
        q = opened[0]
        raise ClusterError(
            "never waited",
            f"{world.who(q)} was never waited for{_more(len(opened))}: until its Wait returns, it may not be done",
        )


def _more(count: int) -> str:
    return f", and {count - 1} more" if count > 1 else ""


def _rows(records: list[Any], width: int) -> Iterator[tuple]:
    return zip(*[iter(records)] * width, strict=True)
