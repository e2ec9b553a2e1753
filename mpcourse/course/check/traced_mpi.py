"""A communicator that notes each call, so that a hang can be explained: which rank waits where, and for whom."""

import difflib
import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from mpi4py import MPI

from mpcourse.course.check.exits import Aborted, line_in
from mpcourse.course.check.status_page import ANY, NONE, Noted, StatusPage

# The arguments worth telling, by position. A call is shown as recv(source=1, tag=7): buffers are left out.
_OF_ALL = (
    "barrier", "Barrier", "allgather", "Allgather", "Allgatherv", "allreduce", "Allreduce", "alltoall", "Alltoall",
    "Alltoallv", "Alltoallw", "Reduce_scatter", "Reduce_scatter_block", "scan", "Scan", "exscan", "Exscan",
)  # fmt: skip
_SEND = ("obj", "dest", "tag")
_RECV = ("buf", "source", "tag")
_SENDRECV = ("sendobj", "dest", "sendtag", "recvbuf", "source", "recvtag")
_ROOTED = ("sendbuf", "recvbuf", "root")
_BLOCKING: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("send", "Send", "ssend", "Ssend", "bsend", "Bsend", "Rsend"), _SEND),
    **dict.fromkeys(("recv", "Recv"), _RECV),
    **dict.fromkeys(("probe", "Probe", "mprobe", "Mprobe"), ("source", "tag")),
    **dict.fromkeys(("sendrecv", "Sendrecv"), _SENDRECV),
    "Sendrecv_replace": ("buf", "dest", "sendtag", "source", "recvtag"),
    **dict.fromkeys(("bcast", "Bcast"), ("obj", "root")),
    **dict.fromkeys(("gather", "scatter"), ("sendobj", "root")),
    **dict.fromkeys(("Gather", "Gatherv", "Scatter", "Scatterv"), _ROOTED),
    "reduce": ("sendobj", "op", "root"),
    "Reduce": ("sendbuf", "recvbuf", "op", "root"),
    **dict.fromkeys(_OF_ALL, ()),
}
_NONBLOCKING: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("isend", "Isend", "issend", "Issend"), _SEND),
    **dict.fromkeys(("irecv", "Irecv"), _RECV),
    **dict.fromkeys(
        ("Ibarrier", "Ibcast", "Igather", "Iscatter", "Iallgather", "Iallreduce", "Ireduce", "Ialltoall"), ()
    ),
}
_MAKES_COMM = ("Split", "Dup", "Clone", "Create", "Create_group", "Split_type")
_SPINS = ("recv", "probe", "Probe", "mprobe", "Mprobe")
_Request = MPI.Request  # before a check puts its own in the place of that
_DEFAULTS = {"source": MPI.ANY_SOURCE, "root": 0}

COLLECTIVES = frozenset(
    name for name, arguments in _BLOCKING.items() if not {"dest", "source"} & set(arguments)
) | frozenset(_MAKES_COMM)


class TracedRequest(_Request):
    """mpi4py's request, unchanged in what it does; `begun` is the call that began it."""

    begun: Noted
    comm: "TracedComm"

    @classmethod
    def wrap(cls, request: _Request, comm: "TracedComm") -> "TracedRequest":
        traced = cls(request)
        traced.begun, traced.comm = comm.last, comm
        return traced


class TracedComm(MPI.Intracomm):
    """mpi4py's communicator, unchanged in what it does but for Abort.

    begun: the number of this rank's calls through it. last: the last one. made: all of them, e.g. "gather(root=0)".
    """

    status_page: StatusPage
    file: str
    begun: int
    last: Noted
    made: set[str]

    @classmethod
    def wrap(cls, comm: MPI.Comm, page: StatusPage, file: str) -> "TracedComm":
        """Make a communicator like `comm` that notes each call in `page`, with its line in the learner's `file`."""
        traced = cls(comm)
        traced.status_page, traced.file, traced.begun, traced.last = page, file, 0, Noted()
        traced.made = set()
        return traced

    def Abort(self, errorcode: int = 0) -> NoReturn:
        raise Aborted(f"comm.Abort({errorcode!r})")


def _noted(name: str, arguments: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any], line: int) -> Noted:
    """Note a call with the arguments that say which rank it waits for."""
    given = dict(zip(arguments, args, strict=False)) | kwargs
    parts, numbers = [], {}
    for key in arguments:
        value = given.get(key, _DEFAULTS.get(key))
        if key in ("source", "dest", "root") and isinstance(value, int):
            numbers[key] = ANY if value == MPI.ANY_SOURCE else value
            parts.append(f"{key}={'any rank' if value == MPI.ANY_SOURCE else value}")
        elif "tag" in key and isinstance(value, int):
            numbers[key] = ANY if value == MPI.ANY_TAG else value
            if value > 0 or (value == 0 and arguments is _RECV):
                parts.append(f"{key}={value}")
    peer = numbers.get("source", numbers.get("dest", NONE))
    tag = numbers.get("tag", numbers.get("recvtag", NONE))
    return Noted(f"{name}({', '.join(parts)})", line, name, peer, tag, numbers.get("root", NONE))


def _await_message(comm: TracedComm, given: dict[str, Any]) -> None:
    """Wait until a message is there that a call with these arguments takes, and leave the core to others meanwhile.

    MPI_Mprobe, which mpi4py's `recv` calls, and MPI_Probe never yield in MPICH: a rank that waits in one keeps a
    core busy, on which the rank that it waits for may have to compute.
    """
    source, tag = given.get("source", MPI.ANY_SOURCE), given.get("tag", MPI.ANY_TAG)
    began = time.monotonic()
    try:
        while not comm.Iprobe(source, tag):
            waited = time.monotonic() - began
            os.sched_yield() if waited < 0.001 else time.sleep(min(waited / 16, 0.005))
    except Exception:
        return  # the call itself says what is wrong


def _watch(name: str, arguments: tuple[str, ...], stage: str) -> Callable[..., Any]:
    original = getattr(MPI.Intracomm, name)

    @functools.wraps(original)
    def method(self: TracedComm, *args: Any, **kwargs: Any) -> Any:
        self.begun, self.last = self.begun + 1, _noted(name, arguments, args, kwargs, line_in(self.file))
        self.made.add(self.last.text)
        self.status_page.write(stage, self.rank, self.last)
        try:
            if name in _SPINS:
                _await_message(self, dict(zip(arguments, args, strict=False)) | kwargs)
            result = original(self, *args, **kwargs)
        finally:
            self.status_page.write("running", self.rank)
        if isinstance(result, _Request):
            return TracedRequest.wrap(result, self)
        if name in _MAKES_COMM and result != MPI.COMM_NULL:
            return TracedComm.wrap(result, self.status_page, self.file)
        return result

    return method


def _watch_wait(name: str) -> Callable[..., Any]:
    """Wrap a method that waits: for the request it belongs to, or, as a class method, for several requests."""
    original = getattr(_Request, name)

    def note(requests: Sequence[Any]) -> "TracedComm | None":
        first = next((r for r in requests if isinstance(r, TracedRequest) and r != MPI.REQUEST_NULL), None)
        if first is None:
            return None
        comm = first.comm
        text = f"the wait for {first.begun.text}"
        comm.begun, comm.last = comm.begun + 1, first.begun._replace(text=text, line=line_in(comm.file))
        comm.status_page.write("waiting", comm.rank, comm.last)
        return comm

    def run(comm: "TracedComm | None", call: Callable[[], Any]) -> Any:
        try:
            return call()
        finally:
            if comm is not None:
                comm.status_page.write("running", comm.rank)

    if name.lower() == "wait":

        @functools.wraps(original)
        def method(self: TracedRequest, *args: Any, **kwargs: Any) -> Any:
            return run(note([self]), lambda: original(self, *args, **kwargs))

        return method

    @functools.wraps(original)
    def several(cls: type, requests: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        return run(note(requests), lambda: original(requests, *args, **kwargs))

    return classmethod(several)  # type: ignore[return-value]


def meant(error: BaseException) -> str:
    """Say which name was most likely meant by an AttributeError on a communicator; else return an empty text."""
    if not (isinstance(error, AttributeError) and isinstance(error.obj, MPI.Comm) and error.name):
        return ""
    # Of gather and Gather the one that begins as what was typed: the last one of a key stays.
    names = sorted(dir(MPI.Intracomm), reverse=error.name[0].isupper())
    plain = {name.lower().replace("_", ""): name for name in names if not name.startswith("_")}
    near = difflib.get_close_matches(error.name.lower().replace("_", ""), plain, n=1)
    if not near:
        return "`dir(comm)` lists the names that a communicator has."
    return f"Did you mean comm.{plain[near[0]]}?"


TracedRequest.__name__ = TracedRequest.__qualname__ = "Request"
TracedComm.__name__ = TracedComm.__qualname__ = "Intracomm"  # what a learner reads in an AttributeError
for _name, _arguments in _BLOCKING.items():
    setattr(TracedComm, _name, _watch(_name, _arguments, "waiting"))
for _name in _MAKES_COMM:
    setattr(TracedComm, _name, _watch(_name, (), "waiting"))
for _name in ("Wait", "wait", "Waitall", "waitall", "Waitany", "waitany", "Waitsome", "waitsome"):
    setattr(TracedRequest, _name, _watch_wait(_name))
for _name, _arguments in _NONBLOCKING.items():
    setattr(TracedComm, _name, _watch(_name, _arguments, "running"))
