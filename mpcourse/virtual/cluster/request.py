"""What a rank has begun and not finished: requests, and what a receive tells of its message."""

import pickle
from collections.abc import Callable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from mpcourse.virtual.cluster.errors import ClusterError

if TYPE_CHECKING:
    from mpcourse.virtual.cluster.world import World

Line = tuple[CodeType, int]  # a function, and where in it: the number of the line is looked up when it is asked for


class Status:
    """Of a message that was received or found: its source and tag, and its length."""

    def __init__(self) -> None:
        self.source, self.tag, self.error, self.nbytes = -2, -1, 0, 0

    def Get_source(self) -> int:
        return self.source

    def Get_tag(self) -> int:
        return self.tag

    def Get_error(self) -> int:
        return self.error

    def Get_count(self, datatype: Any = None) -> int:
        """Elements of `datatype`; None: bytes."""
        return self.nbytes // (1 if datatype is None else datatype.Get_size())

    Get_elements = Get_count

    def Is_cancelled(self) -> bool:
        return False

    @property
    def count(self) -> int:
        return self.nbytes


class Request:
    """A send, a receive or a collective call that one rank has begun. mpi4py's methods.

    end: when it is done, on the cluster's clock; None while nobody knows.
    """

    # What most requests never have is not given to each: tens of thousands are made.
    end: float | None = None
    over = collective = awaited = from_any = False
    source, tag_found = -2, -1
    data: Any = None  # what is sent, or what came and is not handed over yet
    deliver: Callable[[], None] | None = None

    def __init__(
        self, world: "World", comm: Any, name: str, peer: int, tag: int, array: np.ndarray | None, objects: bool,
        receives: bool, blocking: bool, line: Line,
    ) -> None:  # fmt: skip
        self.world, self.comm, self.name, self.line = world, comm, name, line
        self.owner = owner = comm.me
        self.peer, self.tag, self.array, self.objects = peer, tag, array, objects
        self.receives, self.blocking = receives, blocking
        self.nbytes = 0 if array is None else array.nbytes
        self.posted = world.clock[owner]

    @property
    def call(self) -> str:
        """As it stands in the program, e.g. "Recv(source=1, tag=0)"."""
        if self.collective:
            return f"{self.name}()"
        return told_call(self.name, "source" if self.receives else "dest", self.peer, self.tag)

    # -- mpi4py's methods --

    def Wait(self, status: Status | None = None) -> bool:
        self.world.wait(self.owner, (self,))
        self._complete(status)
        return True

    def wait(self, status: Status | None = None) -> Any:
        self.world.wait(self.owner, (self,))
        return self._complete(status)

    def Test(self, status: Status | None = None) -> bool:
        return self.test(status)[0]

    def test(self, status: Status | None = None) -> tuple[bool, Any]:
        if self.over or self.world.poll(self.owner, self.is_done, self.call):
            return True, self._complete(status)
        return False, None

    def Free(self) -> None:
        """Nobody will wait for it. Raises ClusterError where it may still be under way."""
        if not self.over and not self.is_done():
            self.world.fail(
                "never waited",
                f"{self.world.who(self)} was freed and not waited for: nobody knows when its buffer may be used again",
            )
        self.world.open[self.owner].pop(id(self), None)
        self.over = True

    def Cancel(self) -> None:
        raise ClusterError("misuse", "virtual ranks do not cancel requests")

    @classmethod
    def Waitall(cls, requests: Sequence["Request"], statuses: list[Status] | None = None) -> bool:
        cls.waitall(requests, statuses)
        return True

    @classmethod
    def waitall(cls, requests: Sequence["Request"], statuses: list[Status] | None = None) -> list[Any]:
        if alive := tuple(q for q in requests if not q.over):
            alive[0].world.wait(alive[0].owner, alive)
        return [q._complete(_status(statuses, i)) for i, q in enumerate(requests)]

    @classmethod
    def Waitany(cls, requests: Sequence["Request"], status: Status | None = None) -> int:
        return cls.waitany(requests, status)[0]

    @classmethod
    def waitany(cls, requests: Sequence["Request"], status: Status | None = None) -> tuple[int, Any]:
        alive = tuple(q for q in requests if not q.over)
        if not alive:
            return -32766, None
        alive[0].world.wait(alive[0].owner, alive, first=True)
        done = min((q for q in alive if q.is_done()), key=lambda q: (q.end, requests.index(q)))
        return requests.index(done), done._complete(status)

    @classmethod
    def Waitsome(cls, requests: Sequence["Request"], statuses: list[Status] | None = None) -> list[int] | None:
        alive = tuple(q for q in requests if not q.over)
        if not alive:
            return None
        alive[0].world.wait(alive[0].owner, alive, first=True)
        done = [i for i, q in enumerate(requests) if not q.over and q.is_done()]
        for at, i in enumerate(done):
            requests[i]._complete(_status(statuses, at))
        return done

    @classmethod
    def Testall(cls, requests: Sequence["Request"], statuses: list[Status] | None = None) -> bool:
        return cls.testall(requests, statuses)[0]

    @classmethod
    def testall(
        cls, requests: Sequence["Request"], statuses: list[Status] | None = None
    ) -> tuple[bool, list[Any] | None]:
        def all_done() -> bool:
            return all(q.over or q.is_done() for q in requests)

        alive = [q for q in requests if not q.over]
        if alive and not alive[0].world.poll(alive[0].owner, all_done, "Testall()"):
            return False, None
        return True, [q._complete(_status(statuses, i)) for i, q in enumerate(requests)]

    @classmethod
    def Testany(cls, requests: Sequence["Request"], status: Status | None = None) -> tuple[int, bool]:
        alive = [q for q in requests if not q.over]
        if not alive:
            return -32766, True
        if not alive[0].world.poll(alive[0].owner, lambda: any(q.is_done() for q in alive), "Testany()"):
            return -32766, False
        done = min((q for q in alive if q.is_done()), key=lambda q: (q.end, requests.index(q)))
        done._complete(status)
        return requests.index(done), True

    # -- the cluster's side --

    def is_done(self) -> bool:
        """Whether it is over by now, on its rank's clock."""
        return self.end is not None and self.end <= self.world.clock[self.owner]

    def _complete(self, status: Status | None) -> Any:
        """Hand over what came, once. The object of a lower-case receive."""
        if status is not None and self.receives:
            status.source, status.tag, status.nbytes = self.source, self.tag_found, self.nbytes
        if self.over:
            return None
        self.over = True
        self.world.open[self.owner].pop(id(self), None)
        if self.deliver is not None:
            self.deliver()
        elif self.receives:
            if self.objects:
                return None if self.data is None else pickle.loads(self.data)
            if self.data is not None and self.array is not None:
                put(self.data, self.array)
        elif not self.blocking and self.array is not None and self.data is not None:
            if not np.array_equal(self.data.view(np.uint8), self.array.view(np.uint8)):
                self.world.fail(
                    "changed",
                    f"{self.world.who(self)}: its buffer was changed before its Wait. What is sent must stay as it is "
                    "until the request is done",
                )
        return None


class NoRequest(Request):
    """MPI.REQUEST_NULL, which stands in a list for a request that is over: whoever waits for it need not wait."""

    over = True
    receives = False

    def __init__(self) -> None:
        """It belongs to no rank."""

    def __repr__(self) -> str:
        return "MPI.REQUEST_NULL"

    def Wait(self, status: Status | None = None) -> bool:
        return True

    def wait(self, status: Status | None = None) -> Any:
        return None

    def Free(self) -> None:
        """There is nothing to free."""


def told_call(name: str, what: str, peer: int, tag: int) -> str:
    """A call as it stands in the program; of a negative number: any."""
    told = [f"{key}={'ANY_' + key.upper() if value < 0 else value}" for key, value in ((what, peer), ("tag", tag))]
    return f"{name}({', '.join(told)})"


def put(source: np.ndarray, target: np.ndarray) -> None:
    """The elements of `source` to the beginning of `target`, as bytes where their types differ."""
    if source.dtype is target.dtype and source.size == target.size:
        target[:] = source
    elif source.dtype == target.dtype:
        target[: source.size] = source
    else:
        target.view(np.uint8)[: source.nbytes] = source.view(np.uint8)


def _status(statuses: list[Status] | None, at: int) -> Status | None:
    return statuses[at] if statuses is not None and at < len(statuses) else None
