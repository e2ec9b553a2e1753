"""Binomial trees: broadcast and reduce in ceil(lg p) rounds.

In round k of a broadcast the ranks below 2^k, which have the data, send it 2^k further; a reduction is the same tree
the other way round. Ranks count from the root.
"""

from typing import Any

import numpy as np

from mpcourse.collectives.numbers import Array, Op, add, empty_like, row, wire


def broadcast(comm: Any, x: Array, root: int = 0) -> None:
    """Everybody's x becomes that of rank `root`. p - 1 messages of n bytes, ceil(lg p) of them one after the other."""
    _broadcast(comm, row(x), _root(comm, root))


def reduce(comm: Any, x: Array, op: Op | None = None, root: int = 0) -> None:
    """The sum of all x, in place, on rank `root`; what the others' x holds then is a part of it.

    p - 1 messages of n bytes. Neighbours are added up first, so the order is not that of ranks: op must be associative
    and commutative.
    """
    _reduce(comm, row(x), op, _root(comm, root))


def tree_allreduce(comm: Any, x: Array, op: Op | None = None) -> None:
    """Sum x over all ranks, in place: reduce to rank 0, then broadcast. All ranks get the same bits.

    2 ceil(lg p) rounds of n bytes. A rank but the first sends n bytes up, in one message; it sends n bytes down to each
    of its children.
    """
    own = row(x)
    _reduce(comm, own, op, 0)
    _broadcast(comm, own, 0)


def barrier(comm: Any) -> None:
    """Nobody leaves before everybody has come (Hensgen et al. 1988: dissemination).

    In round k everybody tells the rank 2^k further, and hears of the rank 2^k before: ceil(lg p) messages a rank.
    """
    token, step = np.empty(0, np.uint8), 1
    while step < comm.size:
        comm.Sendrecv(token, (comm.rank + step) % comm.size, 0, token.copy(), (comm.rank - step) % comm.size, 0)
        step *= 2


def _broadcast(comm: Any, own: Any, root: int) -> None:
    p, place = comm.size, (comm.rank - root) % comm.size
    step = 1
    while step < p:
        if place < step:
            if place + step < p:
                comm.Send(wire(own), (comm.rank + step) % p)
        elif place < 2 * step:
            comm.Recv(wire(own), (comm.rank - step) % p)
        step *= 2


def _reduce(comm: Any, own: Any, op: Op | None, root: int) -> None:
    p, place = comm.size, (comm.rank - root) % comm.size
    landing = empty_like(own, len(own))
    step = 1
    while step < p:
        if place % (2 * step):
            comm.Send(wire(own), (comm.rank - step) % p)
            return
        if place + step < p:
            comm.Recv(wire(landing), (comm.rank + step) % p)
            add(own, landing, op)
        step *= 2


def _root(comm: Any, root: int) -> int:
    if not 0 <= root < comm.size:
        raise ValueError(f"root is one of the ranks 0 to {comm.size - 1}, not {root}")
    return root
