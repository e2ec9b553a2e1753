"""A group of torch.distributed that notes each collective call, and names ranks that make different ones."""

import contextlib
import datetime
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.exits import line_in
from mpcourse.course.check.status_page import Noted
from mpcourse.course.check.wrong import Wrong

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm


class Sent(NamedTuple):
    """A collective call.

    numbers, nbytes: in the largest of its buffers, such as what all ranks together bring to a gather. share: numbers
    in the smallest, such as what each of them brings.
    """

    name: str
    numbers: int
    nbytes: int
    share: int

    def __str__(self) -> str:
        return f"dist.{_CALLS[self.name]} of {counted(self.share, 'number')}" if self.share else f"dist.{self.name}"


_CALLS = {"allreduce": "all_reduce", "allreduce_coalesced": "all_reduce_coalesced", "allgather": "all_gather"}
_CALLS |= {"_allgather_base": "all_gather_into_tensor", "_reduce_scatter_base": "reduce_scatter_tensor"}
_CALLS |= {name: name for name in ("broadcast", "reduce", "gather", "scatter", "reduce_scatter", "barrier")}


class _Watched(dist.ProcessGroup):
    """A group of gloo, for torch.distributed and for DDP's C++ as well, that notes each call and compares the ranks'.

    The ranks wait for each other here, and not in gloo, so that the process that watches them knows where they wait.
    """

    def __init__(self, gloo: Any, comm: "TracedComm", file: str, sent: list[Sent], different: str) -> None:
        from mpi4py import MPI

        super().__init__(gloo.rank(), gloo.size())  # type: ignore[call-arg]
        self.gloo, self.comm, self.file, self.sent, self.different = gloo, comm, file, sent, different
        self.untraced = MPI.Intracomm(comm)

    def run(self, name: str, *args: Any, **options: Any) -> Any:
        sizes = [size for arg in args if (size := _sizes(arg)) != (0, 0)] or [(0, 0)]
        call = Sent(name, *max(sizes), min(sizes)[0])
        self.sent.append(call)
        page, rank = self.comm.status_page, self.comm.rank
        page.write("waiting", rank, Noted(str(call), line_in(self.file), name))
        try:
            calls = self.untraced.allgather(str(call))
            if len(set(calls)) == 1:
                work = getattr(self.gloo, name)(*args, **options)
                work.wait()
                return work
        finally:
            page.write("running", rank)
        got = ", ".join(f"rank {r} in {other}" for r, other in enumerate(calls))
        raise Wrong("the same calls on all ranks, in the same order", got, self.different)


for _name in _CALLS:
    setattr(_Watched, _name, functools.partialmethod(_Watched.run, _name))


def _sizes(of: Any) -> tuple[int, int]:
    """Return how many numbers and bytes are in a tensor, or in the tensors of a list."""
    if isinstance(of, list):
        parts = [_sizes(part) for part in of]
        return sum(numbers for numbers, _ in parts), sum(nbytes for _, nbytes in parts)
    return (of.numel(), of.nbytes) if isinstance(of, torch.Tensor) else (0, 0)


@contextlib.contextmanager
def group(answer: Answer, comm: "TracedComm", different: str) -> Iterator[list[Sent]]:
    """Make the ranks of `comm` the group of torch.distributed meanwhile; all of them must call this.

    different: what to tell a learner whose ranks make different calls. The list gets each call of this rank.
    """
    sent: list[Sent] = []

    def make(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> _Watched:
        gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
        return _Watched(gloo, comm, str(answer.path), sent, different)

    dist.Backend.register_backend("watched", make, devices=["cpu"])
    # Not a FileStore: its destructor tries to open the file, until a timeout if it is gone.
    own = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if comm.rank == 0 else None
    port = comm.bcast(own and own.port)
    store = own or dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("watched", store=store, rank=comm.rank, world_size=comm.size)
    try:
        yield sent
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
