"""Rabenseifner's algorithm: few rounds and few bytes (Rabenseifner 2004; Thakur, Rabenseifner & Gropp 2005)."""

from typing import Any

from mpcourse.collectives.doubling import fold, power_below, rank_at, unfold
from mpcourse.collectives.numbers import Array, Op, edges, empty_like, row, wire
from mpcourse.collectives.segments import Segments


def rabenseifner_allreduce(
    comm: Any, x: Array, op: Op | None = None, *, segment: int | None = None, far_first: bool = False
) -> None:
    """Sum x over all ranks, in place, in 2 lg p rounds and 2 n (p - 1) / p bytes a rank. Any p.

    A reduce-scatter by recursive halving: in each round a rank and its partner split what both are still responsible
    for, each sends the half that is not its own, and adds what it gets. Then an all-gather: the sums go back the same
    way, twice as much each time. Where p is no power of two, the ranks too many are folded as in recursive doubling: 2
    messages of n bytes more. Each chunk is added up at one place: all ranks get the same bits.

    The distance between partners doubles from round to round of the reduce-scatter, from 1 to p / 2, so that the
    longest messages go to the nearest rank: inside one machine, where ranks are numbered machine by machine.

    segment: the most bytes of a message of the halving, as in `ring_allreduce`; None: whole halves.
    far_first: the distance halves instead, from p / 2 to 1. The bytes and rounds are the same, but the longest messages
    go to the farthest ranks.
    """
    own, p = row(x), comm.size
    many = power_below(p)
    place = comm.rank if many == p else fold(comm, own, empty_like(own, len(own)), op)
    if place >= 0:
        sent, edge = wire(own), edges(len(own), many)
        distances = [1 << k for k in range(many.bit_length() - 1)]  # 1, 2, 4, ... many / 2
        rounds, begin, chunks = [], 0, many  # the chunks that this rank and its next partner are responsible for
        for distance in reversed(distances) if far_first else distances:
            chunks //= 2
            lower, upper = (
                slice(edge[begin], edge[begin + chunks]),
                slice(edge[begin + chunks], edge[begin + 2 * chunks]),
            )
            kept, given = (upper, lower) if place & distance else (lower, upper)
            other = rank_at(comm, place ^ distance)
            longest = max(part.stop - part.start for part in (kept, given))  # one may have an element more
            Segments(own, longest, segment).swap_and_add(comm, sent[given], other, own[kept], other, op)
            rounds.append((other, kept, given))
            begin += chunks if place & distance else 0
        for other, kept, given in reversed(rounds):
            comm.Sendrecv(sent[kept], other, 0, sent[given], other, 0)
    if many < p:
        unfold(comm, own)
