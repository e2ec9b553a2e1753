"""What each collective call does with buffers: what all ranks gave, and what is put where."""

import functools
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mpcourse.virtual.ranks.buffers import alike, blocks, counted, flat, is_named
from mpcourse.virtual.ranks.collective_call import Pairs, memory
from mpcourse.virtual.ranks.constants import ERR_OP
from mpcourse.virtual.ranks.errors import ClusterError
from mpcourse.virtual.ranks.open_requests import bounds
from mpcourse.virtual.ranks.operations import OPERATIONS
from mpcourse.virtual.ranks.place import place


def nothing(given: list[Any]) -> list[Pairs]:
    """Move nothing, for a barrier."""
    return [[] for _ in given]


def bcast(comm: Any, name: str, buf: Any, root: int) -> Any:
    def finish(given: list[Any]) -> list[Pairs]:
        source = given[root][0].copy()
        return [[] if r == root else [(into, source)] for r, (into, _) in enumerate(given)]

    array = checked(comm, flat, buf, comm.rank != root)
    return memory(comm, name, array, None, finish, root=root, count=len(array), dtype=array.dtype)


def gather(comm: Any, name: str, sendbuf: Any, recvbuf: Any, root: int) -> Any:
    pieces = pieces_of(comm, name, recvbuf, "recvbuf") if comm.rank == root else []
    own = in_place(sendbuf) and comm.rank == root
    array = pieces[root] if own else checked(comm, flat, sendbuf)
    if not own:
        separate(comm, name, [array], pieces)

    def finish(given: list[Any]) -> list[Pairs]:
        into = given[root][1]
        fit(name, [a for a, _ in given], into, root)
        return [[] if r != root else list(zip(into, [a for a, _ in given], strict=True)) for r in range(comm.size)]

    return memory(comm, name, array, pieces, finish, root=root, dtype=array.dtype)


def scatter(comm: Any, name: str, sendbuf: Any, recvbuf: Any, root: int) -> Any:
    pieces = pieces_of(comm, name, sendbuf, "sendbuf", False) if comm.rank == root else []
    own = in_place(recvbuf) and comm.rank == root
    array = pieces[root] if own else checked(comm, flat, recvbuf, True)
    if not own:
        separate(comm, name, pieces, [array], "recvbuf")

    def finish(given: list[Any]) -> list[Pairs]:
        sent = given[root][0]
        fit(name, sent, [into for _, into in given], root)
        return [[(into, piece)] for (_, into), piece in zip(given, sent, strict=True)]

    return memory(comm, name, pieces, array, finish, root=root, dtype=array.dtype)


def allgather(comm: Any, name: str, sendbuf: Any, recvbuf: Any) -> Any:
    pieces = pieces_of(comm, name, recvbuf, "recvbuf")
    own = in_place(sendbuf)
    array = pieces[comm.rank] if own else checked(comm, flat, sendbuf)
    if not own:
        separate(comm, name, [array], pieces)

    def finish(given: list[Any]) -> list[Pairs]:
        sent = [a.copy() for a, _ in given]
        for r, (_, into) in enumerate(given):
            fit(name, sent, into, r)
        return [list(zip(into, sent, strict=True)) for _, into in given]

    return memory(comm, name, array, pieces, finish, dtype=array.dtype)


def alltoall(comm: Any, name: str, sendbuf: Any, recvbuf: Any) -> Any:
    pieces = pieces_of(comm, name, recvbuf, "recvbuf")
    given = pieces if in_place(sendbuf) else pieces_of(comm, name, sendbuf, "sendbuf", False)
    if given is not pieces:
        separate(comm, name, given, pieces)
    sent = [piece.copy() for piece in given]

    def finish(given: list[Any]) -> list[Pairs]:
        pairs = []
        for r, (_, into) in enumerate(given):
            mine = [rows[r] for rows, _ in given]
            fit(name, mine, into, r)
            pairs.append(list(zip(into, mine, strict=True)))
        return pairs

    return memory(comm, name, sent, pieces, finish, dtype=sent[0].dtype)


def reduce(comm: Any, name: str, sendbuf: Any, recvbuf: Any, op: Any, root: int | None) -> Any:
    receives = root is None or comm.rank == root
    into = checked(comm, flat, recvbuf, True) if receives else None
    own = in_place(sendbuf) and receives
    array = into if own else checked(comm, flat, sendbuf)
    assert array is not None
    if into is not None and not own:
        apart(comm, name, array, into)
    combine = arrays(comm, name, op, array.dtype)

    def finish(given: list[Any]) -> list[Pairs]:
        total = functools.reduce(combine, [a for a, _ in given]) if comm.size > 1 else given[0][0].copy()
        return [[] if to is None else [(to, total)] for _, to in given]

    agreed = {} if root is None else {"root": root}
    return memory(
        comm, name, array, into, finish, **agreed, op=op_name(operation(op)), count=len(array), dtype=array.dtype
    )


def reduce_scatter(comm: Any, name: str, sendbuf: Any, recvbuf: Any, recvcounts: Any, op: Any) -> Any:
    into = checked(comm, flat, recvbuf, True)
    array = into if in_place(sendbuf) else checked(comm, flat, sendbuf)
    combine = arrays(comm, name, op, array.dtype)
    same_dtype(comm, name, array, into)
    if not in_place(sendbuf):
        separate(comm, name, [array], [into])
    counts = recvcounts
    if counts is None and name.lower().endswith("reduce_scatter"):
        counts = comm.allgather(len(into))  # as mpi4py does
    pieces = checked(
        comm, lambda a: blocks(counted([a, counts, None] if counts is not None else a), comm.size, "sendbuf"), array
    )

    def finish(given: list[Any]) -> list[Pairs]:
        total = functools.reduce(combine, [a for a, _ in given]) if comm.size > 1 else given[0][0].copy()
        begins = np.concatenate([[0], np.cumsum([len(p) for p in pieces])])
        cut = [total[a:b] for a, b in pairwise(begins)]
        fit(name, cut, [i[: len(c)] for (_, i), c in zip(given, cut, strict=True)], 0)
        return [[(i, c)] for (_, i), c in zip(given, cut, strict=True)]

    return memory(comm, name, array, into, finish, op=op_name(operation(op)), count=len(array), dtype=array.dtype)


def scan(comm: Any, name: str, sendbuf: Any, recvbuf: Any, op: Any) -> Any:
    into = checked(comm, flat, recvbuf, True)
    array = into if in_place(sendbuf) else checked(comm, flat, sendbuf)
    if not in_place(sendbuf):
        apart(comm, name, array, into)
    combine = arrays(comm, name, op, array.dtype)
    skip = int("ex" in name.lower())  # Exscan leaves a rank's own part out

    def finish(given: list[Any]) -> list[Pairs]:
        sums = [
            functools.reduce(combine, [a for a, _ in given[: r + 1 - skip]]).copy() if r + 1 - skip else None
            for r in range(comm.size)
        ]
        return [[] if s is None else [(to, s)] for (_, to), s in zip(given, sums, strict=True)]

    return memory(comm, name, array, into, finish, op=op_name(operation(op)), count=len(array), dtype=array.dtype)


def pieces_of(comm: Any, name: str, buf: Any, what: str, writable: bool = True) -> list[np.ndarray]:
    return checked(comm, lambda b: blocks(counted(b, writable), comm.size, what, name.endswith("v"), writable), buf)


def checked(comm: Any, read: Callable, *args: Any) -> Any:
    try:
        return read(*args)
    except ClusterError as error:
        wrong(comm, error.kind, error.text, error.number)


def wrong(comm: Any, kind: str, text: str, number: int | None = None) -> Any:
    comm.world.fail(kind, f"rank {comm.me}, {place(sys._getframe())}: {text}", number)


def same_dtype(comm: Any, name: str, array: np.ndarray, into: np.ndarray) -> None:
    if array.dtype != into.dtype:
        wrong(
            comm,
            "datatypes",
            f"{name}: sendbuf is {array.dtype} and recvbuf {into.dtype}: MPI converts nothing, so both must be of one "
            "datatype",
        )


def apart(comm: Any, name: str, array: np.ndarray, into: np.ndarray) -> None:
    """Check that a reduction can go from `array` to `into`, two buffers of one rank."""
    same_dtype(comm, name, array, into)
    if len(into) != len(array):
        wrong(comm, "counts", f"{name}: sendbuf has {len(array)} elements, recvbuf {len(into)}")
    separate(comm, name, [array], [into])


def separate(
    comm: Any, name: str, sent: Sequence[np.ndarray], into: Sequence[np.ndarray], instead: str = "sendbuf"
) -> None:
    """Check that nothing is received into memory that is sent. instead: the buffer that MPI.IN_PLACE may replace."""
    single = len(sent) == len(into) == 1  # then may_share_memory is exact, because both are contiguous
    if np.may_share_memory(sent[0], into[0]) if single else _overlap(sent, into):
        wrong(
            comm,
            "buffer",
            f"{name}: sendbuf and recvbuf are the same memory: say MPI.IN_PLACE instead of {instead}, or take "
            "another array",
        )


def _overlap(sent: Sequence[np.ndarray], into: Sequence[np.ndarray]) -> bool:
    """Return whether a byte belongs both to an array of `sent` and to one of `into`."""
    ends = [(*bounds(a), which) for which, arrays in enumerate((sent, into)) for a in arrays if a.nbytes]
    reach = [0, 0]  # where the last array of `sent`, and of `into`, ends
    for begin, end, which in sorted(ends):
        if begin < reach[1 - which]:
            return True
        reach[which] = max(reach[which], end)
    return False


def fit(name: str, sent: list[np.ndarray], into: list[np.ndarray], at: int) -> None:
    for r, (a, b) in enumerate(zip(sent, into, strict=True)):
        if a.nbytes and not alike(a.dtype, b.dtype):
            raise ClusterError(
                "datatypes",
                f"{name}: rank {r}'s piece is {a.dtype}, and the place for it {b.dtype} (rank {at}): MPI moves bytes "
                "and converts nothing, so both must be of one datatype",
            )
        if a.nbytes != b.nbytes:
            raise ClusterError(
                "counts",
                f"{name}: rank {r}'s piece has {len(a)} {a.dtype}, but the place for it has {len(b)} {b.dtype} "
                f"(rank {at})",
            )


def arrays(comm: Any, name: str, op: Any, dtype: np.dtype) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    op = operation(op)
    if not hasattr(op, "on"):
        wrong(
            comm,
            "misuse",
            f"{name}: {op!r} is no operation on virtual ranks' buffers: from mpcourse.virtual import MPI",
            ERR_OP,
        )
    return checked(comm, op.on, dtype)


def for_each(comm: Any, name: str, objects: Sequence[Any] | None) -> list[Any]:
    each = [] if objects is None else list(objects)
    if len(each) != comm.size:
        wrong(comm, "counts", f"{name}: a list of {comm.size} objects is needed, one a rank, not of {len(each)}")
    return each


def in_place(buf: Any) -> bool:
    """Return whether it is MPI.IN_PLACE, ours or a real one, or None, which means the same to mpi4py."""
    return buf is None or is_named(buf, "IN_PLACE")


def operation(op: Any) -> Any:
    """Return `op`, or MPI.SUM for None."""
    return OPERATIONS["SUM"] if op is None else op


def op_name(op: Any) -> str:
    return getattr(op, "name", getattr(op, "__name__", repr(op)))
