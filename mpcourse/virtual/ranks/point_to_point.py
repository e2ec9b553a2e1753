"""How a rank sends, receives and probes: what the methods of a communicator share."""

import functools
import operator
import pickle
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from mpcourse.virtual.ranks.buffers import flat
from mpcourse.virtual.ranks.constants import ANY_SOURCE, ANY_TAG, ERR_RANK, ERR_TAG, PROC_NULL
from mpcourse.virtual.ranks.errors import ClusterError
from mpcourse.virtual.ranks.matching import ANY, Message
from mpcourse.virtual.ranks.place import place
from mpcourse.virtual.ranks.request import WATCHED, Line, Request, Status, call_text, put

if TYPE_CHECKING:
    from mpcourse.virtual.ranks.comm import VirtualComm
    from mpcourse.virtual.ranks.world import World


def send(
    comm: "VirtualComm",
    name: str,
    data: np.ndarray,
    dest: int,
    tag: int,
    line: Line,
    blocking: bool,
    *,
    eager: int | None = None,
    ready: bool = False,
    objects: bool = False,
) -> Any:
    """Send; return the request if the send does not block. eager: most bytes that do not wait for their receiver."""
    world, me = comm.world, comm.me
    world.begin(me)
    peer, tag = peer_of(comm, name, "dest", dest), tag_of(comm, name, tag)
    m = Message(name, me, comm.rank, peer, tag, data, objects, world.clock[me], line)
    m.eager = m.nbytes < world.eager if eager is None else m.nbytes <= eager
    q = None
    if not m.eager or not blocking:
        q = m.request = Request(world, comm, name, peer, tag, data, objects, False, blocking, line)
    if q is not None and (peer == PROC_NULL or m.eager):
        q.end = m.posted
    if world.open[me] and not objects:
        _alone(world, m, me, data, False)
    if peer != PROC_NULL:
        world.matching.send(m, comm.context, comm.ranks[peer], m.eager or not blocking, ready)
    if not blocking:
        assert q is not None
        q.data = m.data  # for its Wait, which checks whether it was changed
        world.open[me].add(q)
        return q
    if q is not None:
        world.wait(me, (q,))
    return None


def exchange(
    comm: "VirtualComm",
    name: str,
    data: np.ndarray,
    dest: int,
    sendtag: int,
    into: np.ndarray | None,
    source: int,
    recvtag: int,
    status: Status | None,
    line: Line,
    room: int | None = None,
) -> Any:
    """Send and receive at once. The send ends whatever its receiver does, so a rank need not wait for its turn."""
    world, me = comm.world, comm.me
    if world.ordered:
        world.begin(me)
    else:
        world.mine(me)
    peer = peer_of(comm, name, "dest", dest)
    if into is not None and np.may_share_memory(data, into) and source != PROC_NULL != peer:
        text = f"{name} sends and receives the same memory: take two arrays, or Sendrecv_replace"
        misuse(comm, ClusterError("changed", text))
    end = 0.0
    if peer != PROC_NULL:
        objects = into is None
        m = Message(name, me, comm.rank, peer, tag_of(comm, name, sendtag), data, objects, world.clock[me], line)
        m.eager = True
        world.matching.send(m, comm.context, comm.ranks[peer], True)
        end = m.end
    received = recv(comm, name, into, source, recvtag, line, status, False, room)
    if end > (since := world.clock[me]):  # sending takes longer than receiving
        world.clock[me] = end
        if world.record:
            world.spans += (me, name, "wait", since, end)
    return received


def recv(
    comm: "VirtualComm",
    name: str,
    into: np.ndarray | None,
    source: int,
    tag: int,
    line: Line,
    status: Status | None,
    in_turn: bool = True,
    room: int | None = None,
) -> Any:
    """Receive; return an object if there is no array. room: bytes of a pickled object; None: any number."""
    world, me = comm.world, comm.me
    if source in (ANY_SOURCE, PROC_NULL):
        in_turn = True
    elif world.failure is None:
        # Usually the message has arrived, and then nothing needs to be kept.
        if in_turn:
            world.begin(me)
            in_turn = False
        peer, wanted = peer_of(comm, name, "source", source), ANY if tag == ANY_TAG else tag_of(comm, name, tag)
        if world.open[me] and into is not None:
            r = Request(world, comm, name, peer, wanted, into, False, True, True, line)
            _alone(world, r, me, into, True)
        m = world.matching.take(comm.context, me, peer, wanted)
        if m is not None:
            if into is None or m.objects or m.data.dtype is not into.dtype or m.nbytes > into.nbytes:
                r = Request(world, comm, name, peer, wanted, into, into is None, True, True, line)
                r.room = room
                world.matching.check(m, r)
            since = world.clock[me]
            world.clock[me] = end = world.matching.move(m, me, since)
            if world.record and end > since:
                world.spans += (me, name, "wait", since, end)
            if status is not None:
                status.source, status.tag, status.nbytes = m.source, m.tag, m.nbytes
            if into is None:
                return pickle.loads(m.data.data)
            put(m.data, into)
            return None
    r = irecv(comm, name, into, source, tag, line, True, in_turn, room)
    world.wait(me, (r,))
    return r._complete(status)


def irecv(
    comm: "VirtualComm",
    name: str,
    into: np.ndarray | None,
    source: int,
    tag: int,
    line: Line,
    blocking: bool,
    in_turn: bool = True,
    room: int | None = None,
) -> Request:
    world = comm.world
    if in_turn:
        world.begin(comm.me)
    peer = ANY if source == ANY_SOURCE else peer_of(comm, name, "source", source)
    wanted = ANY if tag == ANY_TAG else tag_of(comm, name, tag)
    r = Request(world, comm, name, peer, wanted, into, into is None, True, blocking, line)
    r.room = room
    if into is not None:
        if world.open[r.owner]:
            _alone(world, r, r.owner, into, True)
        if not blocking and into.nbytes <= WATCHED:
            r.before = into.copy()  # for its Wait, which checks whether the program has written into it
    if source == PROC_NULL:
        r.end, r.source, r.nbytes = r.posted, PROC_NULL, 0
    else:
        world.matching.receive(r)
    if not blocking:
        world.open[r.owner].add(r)
    return r


def probe(comm: "VirtualComm", name: str, source: int, tag: int, status: Status | None) -> None:
    if source == PROC_NULL:
        _nobody(status)
        return
    rank, wanted, call = wanted_by(comm, name, source, tag)
    comm.world.begin(rank)
    while not comm.world.matching.find(wanted[0], rank, *wanted[1:], status):
        comm.world.watch(rank, wanted, call)


def iprobe(comm: "VirtualComm", name: str, source: int, tag: int, status: Status | None) -> bool:
    if source == PROC_NULL:
        _nobody(status)
        return True
    rank, (context, peer, wanted), call = wanted_by(comm, name, source, tag)
    return comm.world.poll(rank, lambda: comm.world.matching.find(context, rank, peer, wanted, status), call)


def _nobody(status: Status | None) -> None:
    """Fill in what a status shows of a message from MPI.PROC_NULL."""
    if status is not None:
        status.source, status.tag, status.nbytes = PROC_NULL, ANY_TAG, 0


def _alone(world: "World", call: Request | Message, me: int, array: np.ndarray, receives: bool) -> None:
    """Fail where `array` is written into while another request of rank `me` uses it, or read while one writes."""
    if (q := world.open[me].using(array, receives)) is not None:
        verb = "receives into" if receives else "sends"
        world.fail(
            "changed",
            f"{world.who(call)} {verb} memory which {world.who(q)} is still using: wait for that one first, or "
            "take another buffer",
        )


def wanted_by(
    comm: "VirtualComm", name: str, source: int, tag: int
) -> tuple[int, tuple[int, int, int], Callable[[], str]]:
    peer = ANY if source == ANY_SOURCE else peer_of(comm, name, "source", source)
    wanted = ANY if tag == ANY_TAG else tag_of(comm, name, tag)
    call = functools.partial(call_text, name, "source", peer, wanted)
    return comm.me, (comm.context, peer, wanted), call


def memory_of(comm: "VirtualComm", buf: Any, writable: bool) -> np.ndarray:
    try:
        return flat(buf, writable)
    except ClusterError as error:
        misuse(comm, error)


def misuse(comm: "VirtualComm", error: ClusterError) -> NoReturn:
    comm.world.fail(error.kind, f"rank {comm.me}, {place(sys._getframe())}: {error.text}", error.number)


def peer_of(comm: "VirtualComm", name: str, what: str, rank: int) -> int:
    if type(rank) is not int:
        try:
            rank = operator.index(rank)
        except TypeError:
            raise TypeError(f"{name}: {what} is a rank, an integer, not {rank!r}") from None
    if not 0 <= rank < comm.size and rank != PROC_NULL:
        misuse(
            comm,
            ClusterError("misuse", f"{name}: {what}={rank}, but there are ranks 0 to {comm.size - 1}", number=ERR_RANK),
        )
    return rank


def tag_of(comm: "VirtualComm", name: str, tag: int) -> int:
    if type(tag) is not int:
        try:
            tag = operator.index(tag)
        except TypeError:
            raise TypeError(f"{name}: a tag is an integer, not {tag!r}") from None
    if not 0 <= tag < 2**28:
        misuse(comm, ClusterError("misuse", f"{name}: tag={tag}, but tags are 0 to {2**28 - 1}", number=ERR_TAG))
    return tag


def pickled(obj: Any) -> np.ndarray:
    return np.frombuffer(pickle.dumps(obj, pickle.HIGHEST_PROTOCOL), np.uint8)
