"""Rabenseifner's algorithm: few rounds and few bytes (Rabenseifner 2004; Thakur, Rabenseifner & Gropp 2005)."""

from typing import NamedTuple

from mpcourse.collectives.buffers import Array, Op, accumulate, empty_like, flatten, mpi_buffer, offsets
from mpcourse.collectives.folding import fold, power_below, rank_at, unfold
from mpcourse.common.comm import Comm


class Halving(NamedTuple):
    """One round of recursive halving.

    partner: the place of the other rank.
    kept: the elements whose sum this rank continues with.
    given: the elements that it sends.
    """

    partner: int
    kept: slice
    given: slice


def halvings(place: int, ranks: int, length: int, far_first: bool = False) -> list[Halving]:
    """Return the rounds of recursive halving for one rank, in order.

    place: of the rank, 0 to ranks - 1.
    ranks: a power of two.
    length: number of elements that are halved.
    far_first: halve the distance between partners each round, from ranks / 2 to 1. False: double it, from 1.
    """
    at = offsets(length, ranks)
    distances = [1 << k for k in range(ranks.bit_length() - 1)]
    rounds, first, count = [], 0, ranks  # this rank and its next partner share chunks first to first + count
    for distance in reversed(distances) if far_first else distances:
        count //= 2
        lower, upper = slice(at[first], at[first + count]), slice(at[first + count], at[first + 2 * count])
        if place & distance:
            rounds.append(Halving(place ^ distance, kept=upper, given=lower))
            first += count
        else:
            rounds.append(Halving(place ^ distance, kept=lower, given=upper))
    return rounds


def rabenseifner_allreduce(comm: Comm, x: Array, op: Op | None = None, *, far_first: bool = False) -> None:
    """Sum x over all p ranks, in place, by recursive halving and doubling. All ranks call it, and get the same bits.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    x: a contiguous numpy array or CPU tensor of any shape; length and dtype are the same on all ranks.
    op: an associative and commutative operation on two flat buffers; None: the sum.
    far_first: send the first and longest messages to the farthest rank. False: to the nearest, which is in the same
    node where ranks are numbered node by node. Bytes and rounds are the same.

    In each round of the reduce-scatter, a rank and its partner split the elements that both are still responsible for;
    each sends the half that is not its own, and adds what it receives. In the all-gather the sums return the same way,
    twice as much in each round. For x of n bytes this takes 2 lg p rounds and 2 n (p - 1) / p bytes per rank. Where p
    is no power of two, ranks are folded: 2 messages of n bytes more (Rabenseifner 2004; Thakur, Rabenseifner & Gropp
    2005).
    Raises TypeError where x is neither an array nor a tensor; ValueError where it is not contiguous, not writeable, or
    not in the host's memory.
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
