"""Messages: how many bytes virtual ranks send, what is pickled, through which communicator, and who waits to raise."""

from collections.abc import Callable
from typing import Any, NamedTuple

from mpcourse.course.check.rules import Test

SLACK = 256  # bytes that ranks may send or pickle besides: to agree on a dtype, or on lengths
LATE = 5.0  # seconds of virtual time by which a rank comes later than the others
COMM = "comm is the communicator to use: rank, size and calls of MPI.COMM_WORLD may be others."


class Sent(NamedTuple):
    """What one virtual rank has sent.

    nbytes: in messages, and in collective calls as the best algorithm of each sends them. calls: the names of its
    collective calls. pickled: bytes that were pickled. world: what went through MPI.COMM_WORLD, where another
    communicator was given.
    """

    nbytes: int = 0
    calls: tuple[str, ...] = ()
    pickled: int = 0
    world: tuple[str, ...] = ()

    @property
    def by(self) -> str:
        """The bytes, and the collective calls that sent them."""
        return f"{self.nbytes} bytes" + (f", by {', '.join(self.calls)}" if self.calls else "")

    @property
    def through_world(self) -> str:
        return " and ".join(dict.fromkeys(self.world))


def other_than_world(comm: Any) -> Any:
    """Return a communicator of the same ranks; of virtual ones not COMM_WORLD, whose calls are then told apart."""
    return comm.Dup() if is_virtual(comm) else comm


def counting(comm: Any) -> Callable[[], Any]:
    """Return a function that says what this virtual rank has sent since now, None on a real rank.

    comm: what the rank was given.
    """
    if not is_virtual(comm):
        return lambda: None
    world, rank = comm.world, comm.me
    calls, messages = len(world.collectives[rank]), len(world.matching.messages)

    def sent() -> Sent:
        made = world.collectives[rank][calls:]
        rows = [(nbytes, row[-1]) for source, _, _, nbytes, *row in world.matching.received(messages) if source == rank]
        nbytes = sum(n for n, _ in rows) + sum(_of_call(call) for call in made)
        pickled = sum(n for n, objects in rows if objects) + sum(_of_call(call) for call in made if call.name.islower())
        through = [f"{call.name}()" for call in made if call.context == 0]
        through += ["messages"] if any(context == 0 for context, _ in world.matching.queues) else []
        names = tuple(call.name for call in made)
        return Sent(nbytes, names, pickled, tuple(through) if comm.context else ())

    return sent


def metered(comm: Any) -> Callable[[], Sent]:
    """Return a function that says what this virtual rank has sent since its last call; all ranks must call it."""
    since = [counting(comm)]

    def sent() -> Sent:
        comm.Barrier()  # until then messages may be under way
        found = since[0]()
        since[0] = counting(comm)
        return found._replace(calls=found.calls[:-1])

    return sent


def is_virtual(comm: Any) -> bool:
    """Return whether a communicator is a virtual rank's."""
    return hasattr(comm, "world")


def clock(comm: Any) -> float:
    """Return the virtual time of this rank; 0 on real ranks."""
    return comm.world.clock[comm.me] if is_virtual(comm) else 0.0


# Facts of these tests have `sent`, what a rank has sent, or None where it is not known.
THROUGH_WORLD = Test(
    "MPI.COMM_WORLD",
    lambda f: f.sent and f.sent.world,
    "ranks to talk through the communicator that is given",
    "{sent.through_world} of MPI.COMM_WORLD",
    COMM,
)

PICKLED = Test(
    "pickled",
    lambda f: f.sent.pickled > SLACK,
    "arrays to be sent by methods that do not pickle, on rank {rank} of {size}",
    "{sent.pickled} bytes of pickled objects",
    "Methods with a small letter pickle, which copies and adds to what is sent: arrays need none.",
)


def _of_call(call: Any) -> int:
    """Return what a rank sends in one collective call."""
    p, n = call.size, call.nbytes
    if call.name == "allgather":  # what was pickled is this rank's own part
        return (p - 1) * n
    kind = call.name.removeprefix("I").lower()
    if kind == "allreduce":
        return 2 * (p - 1) * n // p
    if kind in ("reduce", "gather", "gatherv"):
        return 0 if call.is_root else n
    if kind == "bcast":
        return (p - 1) * n if call.is_root else 0
    if kind in ("scatter", "scatterv"):
        return (p - 1) * n // p if call.is_root else 0
    if kind in ("reduce_scatter", "reduce_scatter_block", "alltoall", "alltoallv", "allgather", "allgatherv"):
        return (p - 1) * n // p
    return 0
