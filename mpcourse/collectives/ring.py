"""The ring: each rank talks to its neighbours only, and sends no more than it must (Patarasuk & Yuan 2009)."""

from typing import Any

from mpcourse.collectives.numbers import Array, Op, add, cut, edges, empty_like, row, wire


def ring_allreduce(comm: Any, x: Array, op: Op | None = None) -> None:
    """Sum x over all ranks, in place. x: any length and dtype that adds; contiguous.

    x is cut into p chunks. For p - 1 steps every rank sends a chunk to its right neighbour, receives one from the left
    and adds it: then each rank has one chunk's sum. For p - 1 more steps the sums go round. Each rank sends 2 (p - 1)
    messages, together all of x twice but for one chunk each time: about 2 n (p - 1) / p bytes, the least that is
    possible. A chunk is added up along the ring, at one place: all ranks get the same bits.
    """
    ring_reduce_scatter(comm, x, op)
    ring_allgather(comm, x)


def ring_reduce_scatter(comm: Any, x: Array, op: Op | None = None) -> None:
    """The first half: then chunk rank + 1 (modulo p) of this rank's x is the sum, the rest holds parts of sums."""
    own, p, rank = row(x), comm.size, comm.rank
    edge, right, left = edges(len(own), p), (rank + 1) % p, (rank - 1) % p
    numbers, sent = cut(own, edge), cut(wire(own), edge)
    landing = empty_like(own, max(map(len, numbers)))
    arrived = wire(landing)
    for step in range(p - 1):
        theirs = numbers[(rank - step - 1) % p]
        comm.Sendrecv(sent[(rank - step) % p], right, 0, arrived[: len(theirs)], left, 0)
        add(theirs, landing[: len(theirs)], op)


def ring_allgather(comm: Any, x: Array) -> None:
    """The second half: chunk rank + 1 of each rank's x goes to all others."""
    own, p, rank = row(x), comm.size, comm.rank
    sent, right, left = cut(wire(own), edges(len(own), p)), (rank + 1) % p, (rank - 1) % p
    for step in range(p - 1):
        comm.Sendrecv(sent[(rank + 1 - step) % p], right, 0, sent[(rank - step) % p], left, 0)
