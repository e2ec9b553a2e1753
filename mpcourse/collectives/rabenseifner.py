"""Rabenseifner's algorithm: few rounds and few bytes (Rabenseifner 2004; Thakur, Rabenseifner & Gropp 2005)."""

from typing import NamedTuple

from mpcourse.collectives.buffers import Array, Op, accumulate, empty_like, flatten, mpi_buffer, offsets
from mpcourse.collectives.folding import fold, power_below, rank_at, unfold
from mpcourse.comm import Comm


class Halving(NamedTuple):
    """One round of recursive halving: the partner's place, and which elements are kept, and given to it."""

    partner: int
    kept: slice
    given: slice


def halvings(place: int, ranks: int, length: int, far_first: bool = False) -> list[Halving]:
    """The rounds of recursive halving of `length` elements over `ranks` ranks, a power of two, for the one at `place`.

    The distance between partners doubles from round to round, from 1 to ranks / 2; far_first: it halves.
    """
    at = offsets(length, ranks)
    distances = [1 << k for k in range(ranks.bit_length() - 1)]
    found, first, count = [], 0, ranks  # this rank and its next partner have chunks first to first + count
    for distance in reversed(distances) if far_first else distances:
        count //= 2
        lower, upper = slice(at[first], at[first + count]), slice(at[first + count], at[first + 2 * count])
        if place & distance:
            found.append(Halving(place ^ distance, kept=upper, given=lower))
            first += count
        else:
            found.append(Halving(place ^ distance, kept=lower, given=upper))
    return found


def rabenseifner_allreduce(comm: Comm, x: Array, op: Op | None = None, *, far_first: bool = False) -> None:
    """Sum x over all ranks, in place, in 2 lg p rounds and 2 n (p - 1) / p bytes a rank. All ranks call it.

    x: a contiguous numpy array or CPU tensor of any shape, of one length and dtype on all ranks. op: an associative and
    commutative operation on two flat buffers instead of the sum. First a reduce-scatter by recursive halving: in each
    round a rank and its partner split what both are still responsible for, each sends the half that is not its own, and
    adds what it receives. Then an all-gather: the sums go back the same way, twice as much each time. Where p is no
    power of two, ranks are folded: 2 messages of n bytes more. Each chunk is added up at one place, so all ranks get
    the same bits. The first and longest messages go to the nearest rank: inside one node, where ranks are numbered node
    by node. far_first: they go to the farthest; bytes and rounds are the same. Raises TypeError or ValueError for what
    cannot be reduced in place.
    """
    own = flatten(x)
    place = fold(comm, own, op)
    if place is not None:
        rounds = halvings(place, power_below(comm.size), len(own), far_first)
        received = empty_like(own, max((h.kept.stop - h.kept.start for h in rounds), default=0))
        for partner, kept, given in rounds:
            arrived, other = received[: kept.stop - kept.start], rank_at(comm, partner)
            comm.Sendrecv(mpi_buffer(own[given]), other, 0, mpi_buffer(arrived), other, 0)
            accumulate(own[kept], arrived, op)
        for partner, kept, given in reversed(rounds):
            other = rank_at(comm, partner)
            comm.Sendrecv(mpi_buffer(own[kept]), other, 0, mpi_buffer(own[given]), other, 0)
    unfold(comm, own)
