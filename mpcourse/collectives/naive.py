"""Gather and broadcast, one message after the other: what everybody writes first."""

from typing import Any

from mpcourse.collectives.numbers import Array, Op, add, empty_like, row, wire


def naive_allreduce(comm: Any, x: Array, op: Op | None = None) -> None:
    """Sum x over all ranks, in place, on rank 0, which sends the sum to everybody.

    Rank 0 receives and sends (p - 1) n bytes in p - 1 messages each, every other rank n bytes in one: the time grows
    with p, and all links but rank 0's lie idle. Added up in the order of ranks; all ranks get the same bits.
    """
    own = row(x)
    if comm.rank:
        comm.Send(wire(own), 0)
        comm.Recv(wire(own), 0)
        return
    landing = empty_like(own, len(own))
    for rank in range(1, comm.size):
        comm.Recv(wire(landing), rank)
        add(own, landing, op)
    for rank in range(1, comm.size):
        comm.Send(wire(own), rank)
