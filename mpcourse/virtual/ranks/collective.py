"""Collective calls of virtual ranks: all ranks meet, and the last one to arrive does the work for all.

No rank leaves before all have arrived. MPI lets some leave earlier (the root of a Bcast); a program that relies on that
is wrong, and its mistake shows here.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpcourse.virtual.ranks import collective_data
from mpcourse.virtual.ranks.collective_call import memory, objects
from mpcourse.virtual.ranks.collective_data import op_name, operation
from mpcourse.virtual.ranks.operations import combined, scanned
from mpcourse.virtual.ranks.request import Request

if TYPE_CHECKING:
    from mpcourse.virtual.ranks.world import World


class Collectives:
    """The part of a communicator that all its ranks call together."""

    world: "World"
    context: int
    rank: int
    me: int
    size: int
    ranks: tuple[int, ...]
    _calls: Any

    # -- memory --

    def Barrier(self) -> None:
        memory(self, "Barrier", [], [], collective_data.nothing)

    def Ibarrier(self) -> Request:
        return memory(self, "Ibarrier", [], [], collective_data.nothing)

    def Bcast(self, buf: Any, root: int = 0) -> None:
        collective_data.bcast(self, "Bcast", buf, root)

    def Ibcast(self, buf: Any, root: int = 0) -> Request:
        return collective_data.bcast(self, "Ibcast", buf, root)

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        collective_data.gather(self, "Gather", sendbuf, recvbuf, root)

    def Igather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        return collective_data.gather(self, "Igather", sendbuf, recvbuf, root)

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        collective_data.gather(self, "Gatherv", sendbuf, recvbuf, root)

    def Igatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        return collective_data.gather(self, "Igatherv", sendbuf, recvbuf, root)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        collective_data.scatter(self, "Scatter", sendbuf, recvbuf, root)

    def Iscatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        return collective_data.scatter(self, "Iscatter", sendbuf, recvbuf, root)

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        collective_data.scatter(self, "Scatterv", sendbuf, recvbuf, root)

    def Iscatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Request:
        return collective_data.scatter(self, "Iscatterv", sendbuf, recvbuf, root)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        collective_data.allgather(self, "Allgather", sendbuf, recvbuf)

    def Iallgather(self, sendbuf: Any, recvbuf: Any) -> Request:
        return collective_data.allgather(self, "Iallgather", sendbuf, recvbuf)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any) -> None:
        collective_data.allgather(self, "Allgatherv", sendbuf, recvbuf)

    def Iallgatherv(self, sendbuf: Any, recvbuf: Any) -> Request:
        return collective_data.allgather(self, "Iallgatherv", sendbuf, recvbuf)

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        collective_data.alltoall(self, "Alltoall", sendbuf, recvbuf)

    def Ialltoall(self, sendbuf: Any, recvbuf: Any) -> Request:
        return collective_data.alltoall(self, "Ialltoall", sendbuf, recvbuf)

    def Alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        collective_data.alltoall(self, "Alltoallv", sendbuf, recvbuf)

    def Ialltoallv(self, sendbuf: Any, recvbuf: Any) -> Request:
        return collective_data.alltoall(self, "Ialltoallv", sendbuf, recvbuf)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: Any = None, root: int = 0) -> None:
        collective_data.reduce(self, "Reduce", sendbuf, recvbuf, op, root)

    def Ireduce(self, sendbuf: Any, recvbuf: Any, op: Any = None, root: int = 0) -> Request:
        return collective_data.reduce(self, "Ireduce", sendbuf, recvbuf, op, root)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = None) -> None:
        collective_data.reduce(self, "Allreduce", sendbuf, recvbuf, op, None)

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: Any = None) -> Request:
        return collective_data.reduce(self, "Iallreduce", sendbuf, recvbuf, op, None)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Any = None) -> None:
        collective_data.reduce_scatter(self, "Reduce_scatter_block", sendbuf, recvbuf, None, op)

    def Ireduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Any = None) -> Request:
        return collective_data.reduce_scatter(self, "Ireduce_scatter_block", sendbuf, recvbuf, None, op)

    def Reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Any = None
    ) -> None:
        collective_data.reduce_scatter(self, "Reduce_scatter", sendbuf, recvbuf, recvcounts, op)

    def Ireduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Any = None
    ) -> Request:
        return collective_data.reduce_scatter(self, "Ireduce_scatter", sendbuf, recvbuf, recvcounts, op)

    def Scan(self, sendbuf: Any, recvbuf: Any, op: Any = None) -> None:
        collective_data.scan(self, "Scan", sendbuf, recvbuf, op)

    def Iscan(self, sendbuf: Any, recvbuf: Any, op: Any = None) -> Request:
        return collective_data.scan(self, "Iscan", sendbuf, recvbuf, op)

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: Any = None) -> None:
        collective_data.scan(self, "Exscan", sendbuf, recvbuf, op)

    def Iexscan(self, sendbuf: Any, recvbuf: Any, op: Any = None) -> Request:
        return collective_data.scan(self, "Iexscan", sendbuf, recvbuf, op)

    # -- objects --

    def barrier(self) -> None:
        objects(self, "barrier", None, lambda given: [None] * self.size)

    def bcast(self, obj: Any, root: int = 0) -> Any:
        return objects(self, "bcast", obj, None, root=root)

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        def finish(given: list[Any]) -> list[Any]:
            return [given if r == root else None for r in range(self.size)]

        return objects(self, "gather", sendobj, finish, root=root)

    def scatter(self, sendobj: Sequence[Any] | None, root: int = 0) -> Any:
        if self.rank == root:
            sendobj = collective_data.for_each(self, "scatter", sendobj)
        return objects(self, "scatter", sendobj, lambda given: list(given[root]), root=root)

    def allgather(self, sendobj: Any) -> list[Any]:
        return objects(self, "allgather", sendobj, lambda given: [given] * self.size)

    def alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        given = collective_data.for_each(self, "alltoall", sendobj)
        return objects(self, "alltoall", given, lambda rows: [[row[r] for row in rows] for r in range(self.size)])

    def reduce(self, sendobj: Any, op: Any = None, root: int = 0) -> Any:
        op = operation(op)

        def finish(given: list[Any]) -> list[Any]:
            return [combined(op, given) if r == root else None for r in range(self.size)]

        return objects(self, "reduce", sendobj, finish, root=root, op=op_name(op))

    def allreduce(self, sendobj: Any, op: Any = None) -> Any:
        op = operation(op)
        return objects(self, "allreduce", sendobj, lambda given: [combined(op, given)] * self.size, op=op_name(op))

    def scan(self, sendobj: Any, op: Any = None) -> Any:
        op = operation(op)

        def finish(given: list[Any]) -> list[Any]:
            return [scanned(op, given[: r + 1], True) for r in range(self.size)]

        return objects(self, "scan", sendobj, finish, op=op_name(op))

    def exscan(self, sendobj: Any, op: Any = None) -> Any:
        op = operation(op)

        def finish(given: list[Any]) -> list[Any]:
            return [scanned(op, given[: r + 1], False) for r in range(self.size)]

        return objects(self, "exscan", sendobj, finish, op=op_name(op))
