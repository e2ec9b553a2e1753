"""A communicator of virtual ranks, with mpi4py's methods and signatures: messages between two ranks."""

import itertools
import operator
import pickle
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from mpcourse.virtual.cluster.buffers import flat
from mpcourse.virtual.cluster.collective import Collectives
from mpcourse.virtual.cluster.errors import ClusterError
from mpcourse.virtual.cluster.mail import ANY, Message
from mpcourse.virtual.cluster.meeting import line_of, meet
from mpcourse.virtual.cluster.request import Line, Request, Status, put, told_call

if TYPE_CHECKING:
    from mpcourse.virtual.cluster.world import World

ANY_SOURCE, ANY_TAG, PROC_NULL, UNDEFINED = -2, -1, -1, -32766


def _line(depth: int = 2) -> Line:
    frame = sys._getframe(depth)
    return frame.f_code, frame.f_lasti


class VirtualComm(Collectives):
    """One rank's communicator, of those that `run` or Split made.

    rank, size: as in mpi4py. ranks: for each of its ranks, its rank in the world. context: a number of its own, so that
    messages of two communicators never meet.
    """

    def __init__(self, world: "World", context: int, ranks: tuple[int, ...], rank: int, name: str = "") -> None:
        self.world, self.context, self.ranks, self.rank, self.size = world, context, ranks, rank, len(ranks)
        self.me = ranks[rank]  # in the world
        self.name = name
        self._calls = itertools.count()  # of collective calls, for all ranks make the same ones
        if rank == 0:
            world.communicators.append(self)

    def __repr__(self) -> str:
        return f"<{self.name or 'a communicator'} of virtual ranks, rank {self.rank} of {self.size}>"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a communicator of virtual ranks has no {name}: only what the course uses of mpi4py")

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Get_name(self) -> str:
        return self.name

    def Set_name(self, name: str) -> None:
        self.name = name

    def Is_inter(self) -> bool:
        return False

    def Is_intra(self) -> bool:
        return True

    def Abort(self, errorcode: int = 0) -> NoReturn:
        """End all ranks."""
        self.world.fail("misuse", f"rank {self.me} called Abort({errorcode})")

    def Free(self) -> None:
        """Nothing is kept."""

    Disconnect = Free

    def compute(self, seconds: float) -> None:
        """This rank works for `seconds` on its own. Real communicators lack it; `mpcourse.virtual.compute` asks."""
        self.world.compute(self.me, seconds)

    # -- messages of memory --

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        self._send("Send", self._flat(buf, False), dest, tag, _line(), True)

    def Ssend(self, buf: Any, dest: int, tag: int = 0) -> None:
        self._send("Ssend", self._flat(buf, False), dest, tag, _line(), True, eager=-1)

    def Bsend(self, buf: Any, dest: int, tag: int = 0) -> None:
        self._send("Bsend", self._flat(buf, False), dest, tag, _line(), True, eager=sys.maxsize)

    def Rsend(self, buf: Any, dest: int, tag: int = 0) -> None:
        self._send("Rsend", self._flat(buf, False), dest, tag, _line(), True, ready=True)

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        return self._send("Isend", self._flat(buf, False), dest, tag, _line(), False)

    def Issend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        return self._send("Issend", self._flat(buf, False), dest, tag, _line(), False, eager=-1)

    def Ibsend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        return self._send("Ibsend", self._flat(buf, False), dest, tag, _line(), False, eager=sys.maxsize)

    def Irsend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        return self._send("Irsend", self._flat(buf, False), dest, tag, _line(), False, ready=True)

    def Recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> None:
        self._recv("Recv", self._flat(buf, True), source, tag, _line(), status)

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        return self._irecv("Irecv", self._flat(buf, True), source, tag, _line(), False)

    def Sendrecv(
        self, sendbuf: Any, dest: int, sendtag: int = 0, recvbuf: Any = None, source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG, status: Status | None = None,
    ) -> None:  # fmt: skip
        line = _line()
        try:
            array, into = flat(sendbuf), flat(recvbuf, True)
        except ClusterError as error:
            self._misuse(error)
        m = self.world.mail.shortcut(self, array, dest, sendtag, into, source, recvtag, line)
        if m is None:
            self._exchange("Sendrecv", array, dest, sendtag, into, source, recvtag, status, line)
        elif status is not None:
            status.source, status.tag, status.nbytes = m.source, m.tag, m.nbytes

    def Sendrecv_replace(
        self, buf: Any, dest: int, sendtag: int = 0, source: int = ANY_SOURCE, recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:  # fmt: skip
        line, array = _line(), self._flat(buf, True)
        self._exchange("Sendrecv_replace", array.copy(), dest, sendtag, array, source, recvtag, status, line)

    def Isendrecv(
        self, sendbuf: Any, dest: int, sendtag: int = 0, recvbuf: Any = None, source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
    ) -> NoReturn:  # fmt: skip
        raise AttributeError("virtual ranks have no Isendrecv: begin an Isend and an Irecv")

    def Probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        self._probe("Probe", source, tag, status)
        return True

    def Iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        return self._iprobe("Iprobe", source, tag, status)

    # -- messages of objects --

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        self._send("send", _pickled(obj), dest, tag, _line(), True, objects=True)

    def ssend(self, obj: Any, dest: int, tag: int = 0) -> None:
        self._send("ssend", _pickled(obj), dest, tag, _line(), True, eager=-1, objects=True)

    def bsend(self, obj: Any, dest: int, tag: int = 0) -> None:
        self._send("bsend", _pickled(obj), dest, tag, _line(), True, eager=sys.maxsize, objects=True)

    def isend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        return self._send("isend", _pickled(obj), dest, tag, _line(), False, objects=True)

    def issend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        return self._send("issend", _pickled(obj), dest, tag, _line(), False, eager=-1, objects=True)

    def ibsend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        return self._send("ibsend", _pickled(obj), dest, tag, _line(), False, eager=sys.maxsize, objects=True)

    def recv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Any:
        return self._recv("recv", None, source, tag, _line(), status)

    def irecv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        return self._irecv("irecv", None, source, tag, _line(), False)

    def sendrecv(
        self, sendobj: Any, dest: int, sendtag: int = 0, recvbuf: Any = None, source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG, status: Status | None = None,
    ) -> Any:  # fmt: skip
        line = _line()
        return self._exchange("sendrecv", _pickled(sendobj), dest, sendtag, None, source, recvtag, status, line)

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        self._probe("probe", source, tag, status)
        return True

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        return self._iprobe("iprobe", source, tag, status)

    # -- communicators --

    def Dup(self, info: Any = None) -> "VirtualComm":
        return self._made("Dup", (0, self.rank))

    def Clone(self) -> "VirtualComm":
        return self._made("Clone", (0, self.rank))

    def Split(self, color: int = 0, key: int = 0) -> Any:
        return self._made("Split", (color, key))

    def Split_type(self, split_type: int, key: int = 0, info: Any = None) -> Any:
        """By node, with COMM_TYPE_SHARED."""
        return self._made("Split_type", (self.world.topology.node(self.me), key))

    def _made(self, name: str, told: tuple[int, int]) -> Any:
        def finish(given: list[Any]) -> tuple[int, list[Any]]:
            colors = sorted({c for c, _ in given if c != UNDEFINED})
            context = {c: next(self.world.contexts) for c in colors}
            members = {c: sorted((k, r) for r, (own, k) in enumerate(given) if own == c) for c in colors}
            return 16, [(context.get(c), [r for _, r in members.get(c, ())]) for c, _ in given]

        context, members = meet(self, name, told, finish, {}, line_of())
        if context is None:
            from mpcourse.virtual.cluster.mpi import COMM_NULL

            return COMM_NULL
        ranks = tuple(self.ranks[r] for r in members)
        return VirtualComm(self.world, context, ranks, members.index(self.rank))

    # -- what they have in common --

    def _send(
        self, name: str, data: np.ndarray, dest: int, tag: int, line: Line, blocking: bool, *, eager: int | None = None,
        ready: bool = False, objects: bool = False,
    ) -> Any:  # fmt: skip
        """eager: the most bytes that do not wait for their receiver. The request of a send that does not block."""
        world, me = self.world, self.me
        world.begin(me)
        peer, tag = self._peer(name, "dest", dest), self._tag(name, tag)
        m = Message(name, me, self.rank, peer, tag, data, objects, world.clock[me], line)
        m.eager = m.nbytes < world.eager if eager is None else m.nbytes <= eager
        q = None
        if not m.eager or not blocking:
            q = m.request = Request(world, self, name, peer, tag, data, objects, False, blocking, line)
        if peer == PROC_NULL or m.eager:
            if q is not None:
                q.end = m.posted
        if peer != PROC_NULL:
            world.mail.send(m, self.context, self.ranks[peer], m.eager or not blocking, ready)
        if not blocking:
            assert q is not None
            q.data = m.data  # to tell, in its Wait, whether it was changed
            world.open[me][id(q)] = q
            return q
        if q is not None:
            world.wait(me, (q,))
        return None

    def _exchange(
        self, name: str, data: np.ndarray, dest: int, sendtag: int, into: np.ndarray | None, source: int, recvtag: int,
        status: Status | None, line: Line,
    ) -> Any:  # fmt: skip
        """Send and receive at once. The send ends whatever its receiver does, so a rank need not wait for its turn."""
        world, me = self.world, self.me
        if world.ordered or world.failure is not None:
            world.begin(me)
        peer = self._peer(name, "dest", dest)
        end = 0.0
        if peer != PROC_NULL:
            objects = into is None
            m = Message(name, me, self.rank, peer, self._tag(name, sendtag), data, objects, world.clock[me], line)
            m.eager = True
            world.mail.send(m, self.context, self.ranks[peer], True)
            end = m.end
        found = self._recv(name, into, source, recvtag, line, status, False)
        if end > world.clock[me]:
            world.clock[me] = end
        return found

    def _recv(
        self, name: str, into: np.ndarray | None, source: int, tag: int, line: Line, status: Status | None,
        in_turn: bool = True,
    ) -> Any:  # fmt: skip
        """Receive; an object where there is no array to receive into."""
        world, me = self.world, self.me
        if source == ANY_SOURCE or source == PROC_NULL:
            in_turn = True
        elif world.failure is None:
            # Most often the message is there: then nothing needs to be kept.
            if in_turn:
                world.begin(me)
                in_turn = False
            peer, wanted = self._peer(name, "source", source), ANY if tag == ANY_TAG else self._tag(name, tag)
            m = world.mail.take(self.context, me, peer, wanted)
            if m is not None:
                if into is None or m.objects or m.data.dtype is not into.dtype or m.nbytes > into.nbytes:
                    world.mail.check(m, Request(world, self, name, peer, wanted, into, into is None, True, True, line))
                since = world.clock[me]
                world.clock[me] = end = world.mail.move(m, me, since)
                if world.record and end > since:
                    world.spans += (me, name, "wait", since, end)
                if status is not None:
                    status.source, status.tag, status.nbytes = m.source, m.tag, m.nbytes
                if into is None:
                    return pickle.loads(m.data.data)
                put(m.data, into)
                return None
        r = self._irecv(name, into, source, tag, line, True, in_turn)
        world.wait(me, (r,))
        return r._complete(status)

    def _irecv(
        self,
        name: str,
        into: np.ndarray | None,
        source: int,
        tag: int,
        line: Line,
        blocking: bool,
        in_turn: bool = True,
    ) -> Request:
        world = self.world
        if in_turn:
            world.begin(self.me)
        peer = ANY if source == ANY_SOURCE else self._peer(name, "source", source)
        wanted = ANY if tag == ANY_TAG else self._tag(name, tag)
        r = Request(world, self, name, peer, wanted, into, into is None, True, blocking, line)
        if source == PROC_NULL:
            r.end, r.source, r.nbytes = r.posted, PROC_NULL, 0
        else:
            world.mail.receive(r)
        if not blocking:
            world.open[r.owner][id(r)] = r
        return r

    def _probe(self, name: str, source: int, tag: int, status: Status | None) -> None:
        if source == PROC_NULL:
            return
        rank, wanted, told = self._wanted(name, source, tag)
        self.world.begin(rank)
        while not self.world.mail.find(wanted[0], rank, *wanted[1:], status):
            self.world.watch(rank, wanted, told)

    def _iprobe(self, name: str, source: int, tag: int, status: Status | None) -> bool:
        rank, (context, peer, wanted), told = self._wanted(name, source, tag)
        return self.world.poll(rank, lambda: self.world.mail.find(context, rank, peer, wanted, status), told)

    def _wanted(self, name: str, source: int, tag: int) -> tuple[int, tuple[int, int, int], str]:
        peer = ANY if source == ANY_SOURCE else self._peer(name, "source", source)
        wanted = ANY if tag == ANY_TAG else self._tag(name, tag)
        told = told_call(name, "source", peer, wanted)
        return self.me, (self.context, peer, wanted), told

    def _flat(self, buf: Any, writable: bool) -> np.ndarray:
        try:
            return flat(buf, writable)
        except ClusterError as error:
            self._misuse(error)

    def _misuse(self, error: ClusterError) -> NoReturn:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
            frame = frame.f_back
        at = self.world.told((frame.f_code, frame.f_lasti))
        self.world.fail(error.kind, f"rank {self.me}, {at}: {error.text}")

    def _peer(self, name: str, what: str, rank: int) -> int:
        if type(rank) is not int:
            try:
                rank = operator.index(rank)
            except TypeError:
                raise TypeError(f"{name}: {what} is a rank, an integer, not {rank!r}") from None
        if not 0 <= rank < self.size and rank != PROC_NULL:
            self._misuse(ClusterError("misuse", f"{name}: {what}={rank}, but there are ranks 0 to {self.size - 1}"))
        return rank

    def _tag(self, name: str, tag: int) -> int:
        if type(tag) is not int:
            try:
                tag = operator.index(tag)
            except TypeError:
                raise TypeError(f"{name}: a tag is an integer, not {tag!r}") from None
        if not 0 <= tag < 2**28:
            self._misuse(ClusterError("misuse", f"{name}: tag={tag}, but tags are 0 to {2**28 - 1}"))
        return tag


def _pickled(obj: Any) -> np.ndarray:
    return np.frombuffer(pickle.dumps(obj, pickle.HIGHEST_PROTOCOL), np.uint8)
