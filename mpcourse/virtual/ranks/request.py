"""What a rank has begun and not finished: requests, and what a receive says about its message."""

import pickle
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from mpcourse.virtual.ranks.constants import ANY_SOURCE, ANY_TAG, UNDEFINED
from mpcourse.virtual.ranks.multiple_completions import Several
from mpcourse.virtual.ranks.refused import NotOffered, Offered

if TYPE_CHECKING:
    from mpcourse.virtual.ranks.world import World

WATCHED = 1 << 16  # bytes of the largest receive buffer that is compared in its Wait; for more it would take long
Line = tuple[CodeType, int]  # a function, and where in it; the line's number is looked up when it is needed


class Status(Offered):
    """The source, tag and length of a message that was received or found."""

    theirs = "Status"

    def __init__(self, status: "Status | None" = None) -> None:
        self.source, self.tag, self.error, self.nbytes, self.cancelled = ANY_SOURCE, ANY_TAG, 0, 0, False
        if status is not None:
            vars(self).update(vars(status))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Status) and vars(self) == vars(other)

    __hash__ = object.__hash__

    def Get_source(self) -> int:
        return self.source

    def Get_tag(self) -> int:
        return self.tag

    def Get_error(self) -> int:
        return self.error

    def Get_count(self, datatype: Any = None) -> int:
        """Return the number of elements of `datatype`, or MPI.UNDEFINED if it is not whole; None: bytes."""
        count, rest = divmod(self.nbytes, 1 if datatype is None else datatype.Get_size())
        return UNDEFINED if rest else count

    Get_elements = Get_count

    def Is_cancelled(self) -> bool:
        return self.cancelled

    def Set_source(self, source: int) -> None:
        self.source = source

    def Set_tag(self, tag: int) -> None:
        self.tag = tag

    def Set_error(self, error: int) -> None:
        self.error = error

    def Set_elements(self, datatype: Any, count: int) -> None:
        self.nbytes = count * datatype.Get_size()

    def Set_cancelled(self, flag: bool) -> None:
        self.cancelled = bool(flag)

    @property
    def count(self) -> int:
        return self.nbytes

    @count.setter
    def count(self, value: int) -> None:
        self.nbytes = value

    is_cancelled = property(Is_cancelled, Set_cancelled)


class Request(Several, Offered):
    """A send, a receive or a collective call that one rank has begun, with mpi4py's methods.

    end: when it is done, on the cluster's clock; None until that is known. over: its rank knows that it is done. From
    then on it is false, and equal to MPI.REQUEST_NULL, like a request that was never begun: `Request()`.
    """

    theirs = "Request"
    # Class attributes, because most of tens of thousands of requests never have these.
    end: float | None = None
    over = collective = awaited = cancelled = False
    source, tag_found, order = -2, -1, 0
    data: Any = None  # what is sent, or what has arrived and is not handed over yet
    before: np.ndarray | None = None  # what was in the memory that is received into
    room: int | None = None  # bytes of the longest pickled object that it takes; None: any number
    deliver: Callable[[], None] | None = None

    def __init__(
        self, world: "World | None" = None, comm: Any = None, name: str = "", peer: int = -1, tag: int = -1,
        array: np.ndarray | None = None, objects: bool = False, receives: bool = False, blocking: bool = False,
        line: Line | None = None,
    ) -> None:  # fmt: skip
        if isinstance(world, Request):
            raise NotOffered("virtual ranks have no second name for a request: keep the one that began it")
        if world is None:  # mpi4py's Request()
            self.over, self.receives = True, False
            return
        self.world, self.name, self.line = world, name, line
        self.context, self.ranks = comm.context, comm.ranks  # not the communicator, which may be freed meanwhile
        self.owner = owner = comm.me
        self.peer, self.tag, self.array, self.objects = peer, tag, array, objects
        self.receives, self.blocking = receives, blocking
        self.nbytes = 0 if array is None else array.nbytes
        self.posted = world.clock[owner]

    def __bool__(self) -> bool:
        return not self.over

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Request) and not self and not other)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<the request of {self.call}>" if self else "MPI.REQUEST_NULL"

    @property
    def call(self) -> str:
        """The call that began it, for messages: "Recv(source=1, tag=0)"."""
        if self.collective:
            return f"{self.name}()"
        return call_text(self.name, "source" if self.receives else "dest", self.peer, self.tag)

    # -- mpi4py's methods --

    def Wait(self, status: Status | None = None) -> bool:
        self.wait(status)
        return True

    def wait(self, status: Status | None = None) -> Any:
        if not self.over:
            self.world.wait(self.owner, (self,))
        return self._complete(status)

    def Test(self, status: Status | None = None) -> bool:
        return self.test(status)[0]

    def test(self, status: Status | None = None) -> tuple[bool, Any]:
        if self.over or self.world.poll(self.owner, self.is_done, lambda: self.call):
            return True, self._complete(status)
        return False, None

    def Get_status(self, status: Status | None = None) -> bool:
        """Whether it is done; unlike Test it leaves the request as it is."""
        done = self.over or self.world.poll(self.owner, self.is_done, lambda: self.call)
        if done and status is not None:
            self._fill(status)
        return done

    get_status = Get_status

    def Free(self) -> None:
        """Free it: no rank will wait for it. Raises ClusterError where it may still be active."""
        if self.over:
            return
        if not self.is_done():
            self.world.fail(
                "never waited",
                f"{self.world.who(self)} was freed and not waited for: when may its buffer be used again?",
            )
        self.world.open[self.owner].remove(self)
        self.over = True

    def Cancel(self) -> None:
        """Give up a receive whose message has not come. It is still to be waited for."""
        if self.over or self.end is not None:
            return  # too late
        if not self.receives or self.collective:
            self.world.fail(
                "misuse", f"{self.world.who(self)}: virtual ranks cancel receives only, as MPI 4.1 recommends"
            )
        self.world.matching.forget(self)
        self.cancelled, self.data, self.nbytes = True, None, 0
        self.world.settle(self, self.world.clock[self.owner])

    cancel = Cancel

    # -- the cluster's side --

    def is_done(self) -> bool:
        """Return whether it is over by now, on its rank's clock."""
        return self.end is not None and self.end <= self.world.clock[self.owner]

    def _fill(self, status: Status) -> None:
        """Fill in a status: with nothing, if the request is already over."""
        if self.over:
            status.source, status.tag, status.nbytes, status.cancelled = ANY_SOURCE, ANY_TAG, 0, False
        elif self.receives:
            status.source, status.tag, status.nbytes = self.source, self.tag_found, self.nbytes
            status.cancelled = self.cancelled

    def _complete(self, status: Status | None) -> Any:
        """Hand over what arrived, once. Return the object of a lower-case receive."""
        if status is not None and (self.receives or self.over):
            self._fill(status)
        if self.over:
            return None
        self.over = True
        self.world.open[self.owner].remove(self)
        if self.cancelled:
            return None
        if self.deliver is not None:
            self.deliver()
        elif self.receives:
            if self.objects:
                return None if self.data is None else pickle.loads(self.data)
            if self.array is not None:
                if self.before is not None:
                    self.unchanged(self.before, self.array, received=True)
                if self.data is not None:
                    put(self.data, self.array)
        elif not self.blocking and self.array is not None and self.data is not None:
            self.unchanged(self.data, self.array)
        return None

    def unchanged(self, before: np.ndarray, now: np.ndarray, received: bool = False) -> None:
        """Fail where memory that belongs to the request until its Wait has other bits now."""
        if not np.array_equal(before.view(np.uint8), now.view(np.uint8)):
            self.world.fail(
                "changed",
                f"{self.world.who(self)}: its buffer was changed before its Wait. "
                + ("What is received into is not the program's" if received else "What is sent must stay as it is")
                + " until the request is done",
            )


NOTHING = Request()  # MPI.REQUEST_NULL


def call_text(name: str, what: str, peer: int, tag: int) -> str:
    """Write a call as in the program; a negative number means any."""
    arguments = [f"{key}={'ANY_' + key.upper() if value < 0 else value}" for key, value in ((what, peer), ("tag", tag))]
    return f"{name}({', '.join(arguments)})"


def put(source: np.ndarray, target: np.ndarray) -> None:
    """Copy the elements of `source` to the beginning of `target`, as bytes where their types differ."""
    if source.dtype is target.dtype and source.size == target.size:
        target[:] = source
    elif source.dtype == target.dtype:
        target[: source.size] = source
    else:
        target.view(np.uint8)[: source.nbytes] = source.view(np.uint8)
