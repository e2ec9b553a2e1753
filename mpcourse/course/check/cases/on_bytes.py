"""Bytes that a virtual rank sends: in messages, and in collective calls as the best algorithm of each sends them."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Sent(NamedTuple):
    """Of one rank. nbytes: of all. calls: the names of its collective calls. pickled: of these, what was pickled."""

    nbytes: int
    calls: tuple[str, ...]
    pickled: int


def counting(comm: Any) -> Callable[[], Sent]:
    """A function that tells what this virtual rank has sent since now."""
    world, rank = comm.world, comm.me
    calls, messages = len(world.collectives[rank]), len(world.matching.messages)

    def sent() -> Sent:
        made = world.collectives[rank][calls:]
        in_messages = sum(n for source, _, _, n, *_ in world.matching.received(messages) if source == rank)
        nbytes = in_messages + sum(_of_call(call) for call in made)
        pickled = sum(_of_call(call) for call in made if call.name.islower())
        return Sent(nbytes, tuple(call.name for call in made), pickled)

    return sent


def _of_call(call: Any) -> int:
    """What a rank sends in one collective call."""
    p, n = call.size, call.nbytes
    if call.name == "allgather":  # what was pickled is this rank's own part
        return (p - 1) * n
    kind = call.name.removeprefix("I").lower()
    if kind == "allreduce":
        return 2 * (p - 1) * n // p
    if kind in ("reduce", "gather", "gatherv"):
        return 0 if call.is_root else n
    if kind == "bcast":
        return (p - 1) * n if call.is_root else 0
    if kind in ("scatter", "scatterv"):
        return (p - 1) * n // p if call.is_root else 0
    if kind in ("reduce_scatter", "reduce_scatter_block", "alltoall", "alltoallv", "allgather", "allgatherv"):
        return (p - 1) * n // p
    return 0
