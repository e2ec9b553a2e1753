"""Rabenseifner's algorithm: few rounds and few bytes (Rabenseifner 2004; Thakur et al. 2005)."""

from typing import Any

from mpcourse.collectives.doubling import fold, power_below, rank_at, unfold
from mpcourse.collectives.numbers import Array, Op, edges, empty_like, row, wire
from mpcourse.collectives.segments import Segments


def rabenseifner_allreduce(comm: Any, x: Array, op: Op | None = None, *, segment: int | None = None) -> None:
    """Sum x over all ranks, in place, in 2 lg p rounds and 2 n (p - 1) / p bytes a rank. Any p.

    Recursive halving: in each round a rank and its partner split what both are still responsible for, each sends the
    half that is not its own, and adds what it gets. Then the sums go back the same way, twice as much each time. Where
    p is no power of two, the ranks too many are folded as in recursive doubling: 2 messages of n bytes more. Each chunk
    is added up at one place: all ranks get the same bits.

    segment: the most bytes of a message of the halving, as in `ring_allreduce`; None: whole halves.
    """
    own, p = row(x), comm.size
    many = power_below(p)
    place = comm.rank if many == p else fold(comm, own, empty_like(own, len(own)), op)
    if place >= 0:
        sent, edge = wire(own), edges(len(own), many)
        steps = [many >> k for k in range(1, many.bit_length())]  # many / 2, many / 4, ... 1
        for step in steps:
            kept, given = _halves(place, step)
            other, begin, end = rank_at(comm, place ^ step), edge[kept], edge[kept + step]
            longest = max(end - begin, edge[given + step] - edge[given])  # the partner's half may be a number longer
            gone = sent[edge[given] : edge[given + step]]
            Segments(own, longest, segment).swap_and_add(comm, gone, other, own[begin:end], other, op)
        for step in reversed(steps):
            kept, given = _halves(place, step)
            other = rank_at(comm, place ^ step)
            mine, theirs = sent[edge[kept] : edge[kept + step]], sent[edge[given] : edge[given + step]]
            comm.Sendrecv(mine, other, 0, theirs, other, 0)
    if many < p:
        unfold(comm, own)


def _halves(place: int, step: int) -> tuple[int, int]:
    """Where the half that a rank keeps begins, in chunks, and the half that its partner keeps."""
    kept = place // step * step
    return kept, kept ^ step
