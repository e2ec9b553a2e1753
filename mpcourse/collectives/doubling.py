"""Recursive doubling: all exchange all they have with somebody, twice as far away each time (Thakur et al. 2005)."""

from typing import Any

from mpcourse.collectives.numbers import Array, Op, add, empty_like, row, wire


def recursive_doubling_allreduce(comm: Any, x: Array, op: Op | None = None) -> None:
    """Sum x over all ranks, in place, in lg p rounds of n bytes: the best for short x. Any p.

    In round k a rank and the one whose number differs in bit k exchange what they have, and both add. Where p is no
    power of two, the r ranks too many first give theirs to a neighbour, and get the sum in the end: 2 messages more.
    Whoever exchanges adds the same two numbers, so all ranks get the same bits where op(a, b) is op(b, a) to the bit.
    """
    own, p = row(x), comm.size
    landing, many = empty_like(own, len(own)), power_below(p)
    sent, arrived = wire(own), wire(landing)
    place = comm.rank if many == p else fold(comm, own, landing, op)
    step = 1 if place >= 0 else many
    while step < many:
        other = place ^ step if many == p else rank_at(comm, place ^ step)
        comm.Sendrecv(sent, other, 0, arrived, other, 0)
        add(own, landing, op)
        step *= 2
    if many < p:
        unfold(comm, own)


def power_below(p: int) -> int:
    """The largest power of two that is not above p."""
    return 1 << (p.bit_length() - 1)


def fold(comm: Any, own: Any, landing: Any, op: Op | None) -> int:
    """Make as many ranks as a power of two; this one's place among them, -1 if its numbers are with its neighbour.

    Of the first 2 r ranks, r = p - 2^k, the even ones give theirs to the odd ones.
    """
    extra = comm.size - power_below(comm.size)
    if comm.rank >= 2 * extra:
        return comm.rank - extra
    if comm.rank % 2 == 0:
        comm.Send(wire(own), comm.rank + 1)
        return -1
    comm.Recv(wire(landing), comm.rank - 1)
    add(own, landing, op)
    return comm.rank // 2


def unfold(comm: Any, own: Any) -> None:
    """Those who had given theirs get the result."""
    extra = comm.size - power_below(comm.size)
    if comm.rank < 2 * extra:
        if comm.rank % 2:
            comm.Send(wire(own), comm.rank - 1)
        else:
            comm.Recv(wire(own), comm.rank + 1)


def rank_at(comm: Any, place: int) -> int:
    """The rank that has a place after `fold`."""
    extra = comm.size - power_below(comm.size)
    return 2 * place + 1 if place < extra else place + extra
