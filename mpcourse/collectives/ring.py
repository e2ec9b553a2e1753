"""The ring: each rank talks to its neighbours only, and sends no more than it must (Patarasuk & Yuan 2009)."""

from typing import Any

from mpcourse.collectives.numbers import Array, Op, cut, edges, row, wire
from mpcourse.collectives.segments import Segments


def ring_allreduce(comm: Any, x: Array, op: Op | None = None, *, segment: int | None = None) -> None:
    """Sum x over all ranks, in place. x: any length and dtype that adds; contiguous.

    x is cut into p chunks. For p - 1 steps every rank sends a chunk to its right neighbour, receives one from the left
    and adds it: then each rank has one chunk's sum. For p - 1 more steps the sums go round. Each rank sends 2 (p - 1)
    messages, together all of x twice but for one chunk each time: about 2 n (p - 1) / p bytes, the least that is
    possible. A chunk is added up along the ring, at one place: all ranks get the same bits.

    segment: the most bytes of a message in the first half; None: whole chunks. Longer chunks go in pieces, which are
    added while they are in the cache: more messages, the same bytes and bits, less time (see segments.py).
    """
    ring_reduce_scatter(comm, x, op, segment=segment)
    ring_allgather(comm, x)


def ring_reduce_scatter(comm: Any, x: Array, op: Op | None = None, *, segment: int | None = None) -> None:
    """The first half: then chunk rank + 1 (modulo p) of this rank's x is the sum, the rest holds parts of sums."""
    own, p, rank = row(x), comm.size, comm.rank
    edge, right, left = edges(len(own), p), (rank + 1) % p, (rank - 1) % p
    numbers, sent = cut(own, edge), cut(wire(own), edge)
    segments = Segments(own, max(map(len, numbers)), segment)
    for step in range(p - 1):
        mine, theirs = (rank - step) % p, (rank - step - 1) % p
        segments.swap_and_add(comm, sent[mine], right, numbers[theirs], left, op)


def ring_allgather(comm: Any, x: Array) -> None:
    """The second half: chunk rank + 1 of each rank's x goes to all others."""
    own, p, rank = row(x), comm.size, comm.rank
    sent, right, left = cut(wire(own), edges(len(own), p)), (rank + 1) % p, (rank - 1) % p
    for step in range(p - 1):
        comm.Sendrecv(sent[(rank + 1 - step) % p], right, 0, sent[(rank - step) % p], left, 0)
