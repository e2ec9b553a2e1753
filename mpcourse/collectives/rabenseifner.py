"""Rabenseifner's algorithm: few rounds and few bytes (Rabenseifner 2004; Thakur et al. 2005)."""

from typing import Any

from mpcourse.collectives.doubling import fold, power_below, rank_at, unfold
from mpcourse.collectives.numbers import Array, Op, add, edges, empty_like, row, wire


def rabenseifner_allreduce(comm: Any, x: Array, op: Op | None = None) -> None:
    """Sum x over all ranks, in place, in 2 lg p rounds and 2 n (p - 1) / p bytes a rank. Any p.

    Recursive halving: in each round a rank and its partner split what both are still responsible for, each sends the
    half that is not its own, and adds what it gets. Then the sums go back the same way, twice as much each time. Where
    p is no power of two, the ranks too many are folded as in recursive doubling: 2 messages of n bytes more. Each chunk
    is added up at one place: all ranks get the same bits.
    """
    own = row(x)
    landing = empty_like(own, len(own))
    place = fold(comm, own, landing, op)
    if place >= 0:
        many = power_below(comm.size)
        edge = edges(len(own), many)
        steps = [many >> k for k in range(1, many.bit_length())]  # many / 2, many / 4, ... 1
        for step in steps:
            kept, given = _halves(place, step)
            other, length = rank_at(comm, place ^ step), edge[kept + step] - edge[kept]
            gone, arrived = own[edge[given] : edge[given + step]], landing[:length]
            comm.Sendrecv(wire(gone), other, 0, wire(arrived), other, 0)
            add(own[edge[kept] : edge[kept + step]], arrived, op)
        for step in reversed(steps):
            kept, given = _halves(place, step)
            other = rank_at(comm, place ^ step)
            mine, theirs = own[edge[kept] : edge[kept + step]], own[edge[given] : edge[given + step]]
            comm.Sendrecv(wire(mine), other, 0, wire(theirs), other, 0)
    unfold(comm, own)


def _halves(place: int, step: int) -> tuple[int, int]:
    """Where the half that a rank keeps begins, in chunks, and the half that its partner keeps."""
    kept = place // step * step
    return kept, kept ^ step
