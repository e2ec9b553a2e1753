"""One collective call: which ranks have arrived, whether all mean the same, and what it costs."""

import functools
import math
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mpcourse.virtual.ranks.constants import ERR_ROOT
from mpcourse.virtual.ranks.errors import ClusterError
from mpcourse.virtual.ranks.place import place
from mpcourse.virtual.ranks.request import WATCHED, Line, Request, put

Pairs = list[tuple[np.ndarray, np.ndarray]]  # (what is written, what is put there)
Finish = Callable[[list[Any]], tuple[int, list[Any]]]  # from what all gave: the bytes that count, and what each gets

_UNCHANGING = (int, float, str, bytes, type(None))
KINDS = {"count": "counts", "dtype": "datatypes"}


class Packed(NamedTuple):
    """An object in transit."""

    data: bytes

    @classmethod
    def of(cls, value: Any) -> "Packed":
        return cls(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


class Unchanging(NamedTuple):
    """A list of objects that cannot be changed: each receiver makes a list of the same objects, in no time."""

    data: list[Any]


class CollectiveCall(NamedTuple):
    """A collective call of one rank: its name, when it was made, and the bytes of the larger buffer given to it.

    size: number of ranks that make it. is_root: whether this rank is its root; for calls without a root, rank 0 is.
    context: of the communicator, 0 for COMM_WORLD.
    """

    name: str
    at: float
    nbytes: int
    size: int
    is_root: bool
    context: int = 0


class OpenCollective:
    """A collective call that some ranks have reached.

    agreed: what all ranks must give alike, as the first rank gave it.
    """

    def __init__(self, name: str, agreed: dict[str, Any], first: Request) -> None:
        self.name, self.agreed, self.first = name, agreed, first
        self.arrived: dict[int, Request] = {}
        self.given: dict[int, Any] = {}

    def arrive(self, rank: int, q: Request, agreed: dict[str, Any], given: Any, number: int) -> None:
        """Add a rank that has arrived. Raises ClusterError on all ranks if it means something else."""
        self.arrived[rank], self.given[rank] = q, given
        a, b, world = self.first, q, q.world
        if q.name != self.name:
            world.fail(
                "collectives",
                f"rank {b.owner} calls {b.name} ({world.line(b)}) where rank {a.owner} calls {a.name} "
                f"({world.line(a)}), as collective call {number + 1} of their communicator: all its ranks "
                "must make the same ones in the same order",
            )
        for key, mine in agreed.items():
            if self.agreed[key] != mine:
                theirs = self.agreed[key]
                what = {
                    "root": f"root={theirs} and root={mine}: all must name the same",
                    "op": f"the operations {theirs} and {mine}: all must name the same",
                    "count": f"{theirs} and {mine} elements: all must give as many",
                    "dtype": f"{theirs} and {mine}: all must give the same datatype",
                }[key]
                world.fail(
                    KINDS.get(key, "collectives"),
                    f"{self.name} on rank {a.owner} ({world.line(a)}) and on rank {b.owner} "
                    f"({world.line(b)}) has {what}",
                )


def seconds(name: str, p: int, n: int, alpha: float, beta: float) -> float:
    """Return the seconds of a collective call, by the best of its textbook algorithms (Thakur et al. 2005).

    n: bytes of the largest rank's part. All links count as slow as the slowest. Reducing costs nothing here.
    """
    if p == 1:
        return 0.0
    steps, share = math.ceil(math.log2(p)), (p - 1) / p
    tree, halves = steps * (alpha + n * beta), 2 * share * n * beta
    kind = name.lower().removeprefix("i")
    if kind in ("barrier", "clone", "dup", "split", "split_type"):
        return steps * alpha
    if kind in ("bcast", "reduce"):
        return min(tree, (steps + p - 1) * alpha + halves)
    if kind == "allreduce":
        return min(tree, 2 * steps * alpha + halves)
    if kind in ("gather", "gatherv", "allgather", "allgatherv"):
        return steps * alpha + (p - 1) * n * beta
    if kind in ("scatter", "scatterv", "reduce_scatter", "reduce_scatter_block"):
        return steps * alpha + share * n * beta
    if kind in ("alltoall", "alltoallv"):
        return (p - 1) * alpha + share * n * beta
    return tree  # scan, exscan


def memory(comm: Any, name: str, sent: Any, into: Any, finish: Callable, **agreed: Any) -> Any:
    """Make a collective call on buffers; return a request if its name begins with I, else None.

    finish: takes what all ranks gave, (sent, into) each; returns what is put where.
    """
    blocking, original, kept = not name.startswith("I"), sent, []
    if not blocking:
        receives = name == "Ibcast" and agreed["root"] != comm.rank
        targets = sent if receives else into
        if targets is not sent or receives:
            kept = [(each, each.copy()) for each in _arrays(targets) if each.nbytes <= WATCHED]
        if not receives:
            sent = sent.copy() if isinstance(sent, np.ndarray) else [piece.copy() for piece in sent]

    def done(given: list[Any]) -> tuple[int, list[Any]]:
        return max((_size(s) for s, _ in given), default=0), finish(given)

    nbytes = max(_size(sent), 0 if into is None else _size(into))
    q = begin(comm, name, (sent, into), done, agreed, line_of(), blocking, nbytes)
    q.deliver = functools.partial(_hand_over, q, original, sent, kept)
    if not blocking:
        return q
    comm.world.wait(q.owner, (q,))
    q._complete(None)
    return None


def objects(comm: Any, name: str, given: Any, finish: Callable | None, **agreed: Any) -> Any:
    """Make a collective call on objects: every rank gets copies, as if they had been sent.

    finish: takes what all ranks gave, returns what each gets. None: all get what the root gave.
    """
    pickled = pickle.dumps(given, pickle.HIGHEST_PROTOCOL)

    def done(sent: list[bytes]) -> tuple[int, list[Any]]:
        if finish is None:
            return max(map(len, sent)), [Packed(sent[agreed["root"]])] * len(sent)
        results = finish([pickle.loads(s) for s in sent])
        # A change that one rank makes must not reach another. Each rank has its own classes of a program, so the rank
        # that made an object of such a class pickles it, and the rank that gets it makes its own object from that.
        packed: dict[int, Any] = {}
        for each in results:
            if id(each) not in packed:
                packed[id(each)] = _packed(each)
        return max(map(len, sent)), [packed[id(each)] for each in results]

    mine = meet(comm, name, pickled, done, agreed, line_of(), len(pickled))
    if isinstance(mine, Unchanging):
        return mine.data.copy()
    return pickle.loads(mine.data) if isinstance(mine, Packed) else mine


def _packed(value: Any) -> Any:
    if isinstance(value, _UNCHANGING):
        return value
    return Unchanging(value) if type(value) is list and all(map(_never_changes, value)) else Packed.of(value)


def _never_changes(value: Any) -> bool:
    """Return whether an object never changes; a program's own class may."""
    return type(value) in _UNCHANGING or (type(value) is tuple and all(map(_never_changes, value)))


def meet(comm: Any, name: str, given: Any, finish: Finish, agreed: dict[str, Any], line: Line, nbytes: int = 0) -> Any:
    q = begin(comm, name, given, finish, agreed, line, True, nbytes)
    comm.world.wait(q.owner, (q,))
    q._complete(None)
    return q.data


def begin(
    comm: Any,
    name: str,
    given: Any,
    finish: Finish,
    agreed: dict[str, Any],
    line: Line,
    blocking: bool,
    nbytes: int = 0,
) -> Request:
    world, rank = comm.world, comm.me
    world.begin(rank)
    world.said += 1
    root = agreed.get("root", 0)
    if world.record:
        made = CollectiveCall(name, world.clock[rank], nbytes, comm.size, root == comm.rank, comm.context)
        world.collectives[rank].append(made)
    if not isinstance(root, int | np.integer) or not 0 <= root < comm.size:
        world.fail(
            "misuse",
            f"rank {rank}, {place(sys._getframe())}: {name}: root={root}, but there are ranks 0 to {comm.size - 1}",
            ERR_ROOT,
        )
    key = (comm.context, next(comm._calls))
    q = Request(world, comm, name, -1, key, None, True, False, blocking, line)  # type: ignore[arg-type]
    q.collective, q.data = True, None
    call = world.open_collectives.setdefault(key, OpenCollective(name, agreed, q))
    call.arrive(comm.rank, q, agreed, given, key[1])
    if not blocking:
        world.open[rank].add(q)
    if len(call.arrived) == comm.size:
        del world.open_collectives[key]
        try:
            nbytes, results = finish([call.given[r] for r in range(comm.size)])
        except ClusterError as error:
            world.fail(error.kind, error.text, error.number)
        link = world.wires.slowest(comm.ranks)
        # Calls of one communicator run one after the other, as in NCCL's stream: they would share the links anyway.
        free = world.collectives_until.get(comm.context, 0.0)
        start = max(free, *(r.posted for r in call.arrived.values()))
        end = start + seconds(name, comm.size, nbytes, link.latency, 1 / link.bandwidth)
        world.collectives_until[comm.context] = end
        for r, other in call.arrived.items():
            other.data = results[r]
            world.settle(other, end)
    return q


def line_of() -> Line:
    """Return where the program called the method that asks."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def _hand_over(q: Request, original: Any, sent: Any, kept: Pairs) -> None:
    """Hand over what a collective call brings.

    original: the buffer, or the buffers, that were given to be sent. sent: what was in them then. kept: the memory that
    is received into, and what was in it.
    """
    if original is not sent:
        for pair in zip(_arrays(sent), _arrays(original), strict=True):
            q.unchanged(*pair)
    for target, before in kept:
        q.unchanged(before, target, received=True)
    for target, source in q.data:
        put(source, target)


def _arrays(buffers: Any) -> Sequence[np.ndarray]:
    """Return one buffer, several, or None, as a list."""
    return [buffers] if isinstance(buffers, np.ndarray) else buffers or []


def _size(sent: Any) -> int:
    return sent.nbytes if isinstance(sent, np.ndarray) else sum(s.nbytes for s in sent)
