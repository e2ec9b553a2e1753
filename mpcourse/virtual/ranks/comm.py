"""A communicator of virtual ranks, with mpi4py's methods and signatures."""

import itertools
import sys
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from mpcourse.virtual.ranks import point_to_point
from mpcourse.virtual.ranks.collective import Collectives
from mpcourse.virtual.ranks.communicator_constructors import Constructors
from mpcourse.virtual.ranks.constants import ANY_SOURCE, ANY_TAG, ERR_COMM
from mpcourse.virtual.ranks.errors import ClusterError
from mpcourse.virtual.ranks.fast_sendrecv import sendrecv
from mpcourse.virtual.ranks.point_to_point import memory_of, pickled
from mpcourse.virtual.ranks.refused import NoAttribute, Offered, reduced, refusal
from mpcourse.virtual.ranks.request import Line, Request, Status

if TYPE_CHECKING:
    from mpcourse.virtual.ranks.world import World


def _line(depth: int = 2) -> Line:
    frame = sys._getframe(depth)
    return frame.f_code, frame.f_lasti


def _room(buf: Any) -> int:
    """Return how many bytes of a pickled object fit into what mpi4py takes as `buf`: a number, or memory."""
    return int(buf) if isinstance(buf, int | np.integer) else memoryview(buf).nbytes


def _room_of_recv(buf: Any) -> int | None:
    """Do the same for calls that first ask how long a message is, unless they are given a buffer."""
    if buf is None:
        return None
    warnings.warn("the 'buf' argument is deprecated", UserWarning, stacklevel=3)
    return _room(buf)


IRECV_BYTES = 32768  # room of `irecv` for a pickled object without a buffer: mpi4py.rc.irecv_bufsz


class VirtualComm(Collectives, Constructors, Offered):
    """One rank's communicator, made by `run` or Split.

    rank, size: as in mpi4py. ranks: for each of its ranks, the rank in the world. context: its own number, so that
    messages of two communicators never meet.
    """

    theirs = "Intracomm"

    def __new__(cls, comm: "VirtualComm | None" = None) -> Any:
        """Return another name for `comm`, or for MPI.COMM_NULL."""
        made = super().__new__(cls)
        if not comm:
            made.__class__ = NullComm
        else:
            vars(made).update(vars(comm))
        return made

    @classmethod
    def _of(cls, world: "World", context: int, ranks: tuple[int, ...], rank: int, name: str = "") -> "VirtualComm":
        """Make a communicator."""
        made = super().__new__(cls)
        made._set(world, context, ranks, rank, name)
        return made

    def _set(self, world: "World", context: int, ranks: tuple[int, ...], rank: int, name: str) -> None:
        self.world, self.context, self.ranks, self.rank, self.size = world, context, ranks, rank, len(ranks)
        self.me = ranks[rank]  # in the world
        self.name = name
        self._calls = itertools.count()  # of collective calls, for all ranks make the same ones
        world.members[context] = ranks

    def __repr__(self) -> str:
        return f"<{self.name or 'a communicator'} of virtual ranks, rank {self.rank} of {self.size}>"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, VirtualComm)
            and bool(other)
            and (self.world, self.context) == (other.world, other.context)
        )

    def __hash__(self) -> int:
        return self.context

    def __reduce__(self) -> Any:
        return reduced(self, {"COMM_WORLD": self.world.comms[self.me], "COMM_SELF": self.world.selves[self.me]})

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

    is_inter, is_intra = property(Is_inter), property(Is_intra)

    def Abort(self, errorcode: int = 0) -> NoReturn:
        """End all ranks."""
        self.world.fail("misuse", f"rank {self.me} called Abort({errorcode})")

    def compute(self, seconds: float, phase: str = "") -> None:
        """Let this rank work for `seconds` by itself. `mpcourse.virtual.compute` calls it; real ranks lack it."""
        self.world.compute(self.me, seconds, phase or "compute")

    # -- messages of memory --

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        point_to_point.send(self, "Send", memory_of(self, buf, False), dest, tag, _line(), True)

    def Ssend(self, buf: Any, dest: int, tag: int = 0) -> None:
        point_to_point.send(self, "Ssend", memory_of(self, buf, False), dest, tag, _line(), True, eager=-1)

    def Bsend(self, buf: Any, dest: int, tag: int = 0) -> None:
        point_to_point.send(self, "Bsend", memory_of(self, buf, False), dest, tag, _line(), True, eager=sys.maxsize)

    def Rsend(self, buf: Any, dest: int, tag: int = 0) -> None:
        point_to_point.send(self, "Rsend", memory_of(self, buf, False), dest, tag, _line(), True, ready=True)

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        return point_to_point.send(self, "Isend", memory_of(self, buf, False), dest, tag, _line(), False)

    def Issend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        return point_to_point.send(self, "Issend", memory_of(self, buf, False), dest, tag, _line(), False, eager=-1)

    def Ibsend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        return point_to_point.send(
            self, "Ibsend", memory_of(self, buf, False), dest, tag, _line(), False, eager=sys.maxsize
        )

    def Irsend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        return point_to_point.send(self, "Irsend", memory_of(self, buf, False), dest, tag, _line(), False, ready=True)

    def Recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> None:
        point_to_point.recv(self, "Recv", memory_of(self, buf, True), source, tag, _line(), status)

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        return point_to_point.irecv(self, "Irecv", memory_of(self, buf, True), source, tag, _line(), False)

    def Sendrecv(
        self, sendbuf: Any, dest: int, sendtag: int = 0, recvbuf: Any = None, source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG, status: Status | None = None,
    ) -> None:  # fmt: skip
        frame = sys._getframe(1)
        line = frame.f_code, frame.f_lasti
        if not sendrecv(self, sendbuf, dest, sendtag, recvbuf, source, recvtag, status, line):
            array, into = memory_of(self, sendbuf, False), memory_of(self, recvbuf, True)
            point_to_point.exchange(self, "Sendrecv", array, dest, sendtag, into, source, recvtag, status, line)

    def Sendrecv_replace(
        self, buf: Any, dest: int, sendtag: int = 0, source: int = ANY_SOURCE, recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:  # fmt: skip
        line, array = _line(), memory_of(self, buf, True)
        point_to_point.exchange(
            self, "Sendrecv_replace", array.copy(), dest, sendtag, array, source, recvtag, status, line
        )

    def Isendrecv(
        self, sendbuf: Any, dest: int, sendtag: int = 0, recvbuf: Any = None, source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
    ) -> NoReturn:  # fmt: skip
        raise NoAttribute(refusal("Intracomm", "Isendrecv", "Intracomm", ()))

    def Probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        point_to_point.probe(self, "Probe", source, tag, status)
        return True

    def Iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        return point_to_point.iprobe(self, "Iprobe", source, tag, status)

    # -- messages of objects --

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        point_to_point.send(self, "send", pickled(obj), dest, tag, _line(), True, objects=True)

    def ssend(self, obj: Any, dest: int, tag: int = 0) -> None:
        point_to_point.send(self, "ssend", pickled(obj), dest, tag, _line(), True, eager=-1, objects=True)

    def bsend(self, obj: Any, dest: int, tag: int = 0) -> None:
        point_to_point.send(self, "bsend", pickled(obj), dest, tag, _line(), True, eager=sys.maxsize, objects=True)

    def isend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        return point_to_point.send(self, "isend", pickled(obj), dest, tag, _line(), False, objects=True)

    def issend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        return point_to_point.send(self, "issend", pickled(obj), dest, tag, _line(), False, eager=-1, objects=True)

    def ibsend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        return point_to_point.send(
            self, "ibsend", pickled(obj), dest, tag, _line(), False, eager=sys.maxsize, objects=True
        )

    def recv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Any:
        return point_to_point.recv(self, "recv", None, source, tag, _line(), status, room=_room_of_recv(buf))

    def irecv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        room = IRECV_BYTES if buf is None else _room(buf)
        return point_to_point.irecv(self, "irecv", None, source, tag, _line(), False, room=room)

    def sendrecv(
        self, sendobj: Any, dest: int, sendtag: int = 0, recvbuf: Any = None, source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG, status: Status | None = None,
    ) -> Any:  # fmt: skip
        line = _line()
        return point_to_point.exchange(
            self, "sendrecv", pickled(sendobj), dest, sendtag, None, source, recvtag, status, line,
            _room_of_recv(recvbuf),
        )  # fmt: skip

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        point_to_point.probe(self, "probe", source, tag, status)
        return True

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        return point_to_point.iprobe(self, "iprobe", source, tag, status)


class NullComm(VirtualComm):
    """No communicator: what Split gives to a rank in no part, and what a communicator becomes by its Free."""

    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NullComm)

    def __hash__(self) -> int:
        return 0

    def __reduce__(self) -> Any:
        return reduced(self, {"COMM_NULL": COMM_NULL})

    def __repr__(self) -> str:
        return "MPI.COMM_NULL"

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        freed = object.__getattribute__(self, "__dict__")
        why = "was freed: free it when no rank needs it any more" if freed else "is MPI.COMM_NULL: this rank is in none"
        raise ClusterError("misuse", f"{name} of a communicator that {why}", number=ERR_COMM)


COMM_NULL = VirtualComm()
