"""Silent corruption: bits that have changed without an error, found by comparing what should be equal."""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence

import torch

from mpcourse.common.comm import Comm
from mpcourse.data_parallel.host_staging import bytes_of
from mpcourse.data_parallel.parameters import Model, all_tensors

Tensor = torch.Tensor


def fingerprint(x: Tensor) -> int:
    """Return a number of 32 bits that is equal for equal bits, and different for a single bit that differs.

    x: any tensor.
    """
    return zlib.crc32(bytes_of(x))


def flip(x: Tensor, index: int, bit: int) -> None:
    """Flip one bit of a tensor, in place, as a fault of a memory or a core would.

    x: contiguous, in the host's memory.
    index: of the number, in the order of memory.
    bit: 0 is the lowest; of a float32, 23 to 30 are the exponent, and 31 is the sign.
    Raises ValueError for a bit that the number does not have.
    """
    if not 0 <= bit < 8 * x.element_size():
        raise ValueError(f"bit {bit}: a {str(x.dtype).removeprefix('torch.')} has bits 0 to {8 * x.element_size() - 1}")
    at = x.element_size() * index + bit // 8  # the lowest byte comes first
    x.detach().view(-1).view(torch.uint8)[at] ^= 1 << bit % 8


def differing_replicas(comm: Comm, model: Model) -> dict[str, list[int]]:
    """Return which tensors differ between replicas, by name, and the ranks on which. All ranks call it.

    comm: of the replicas.
    model: a module, or its tensors, by name or in a list; meant to be the same on all ranks.

    A rank differs if most ranks have other bits. Where no bits have a majority, all ranks are returned. What all
    replicas have got wrong alike, such as a mean with a wrong gradient in it, is not found.
    """
    own = {name: fingerprint(x) for name, x in all_tensors(model).items()}
    every = comm.allgather(own)
    found: dict[str, list[int]] = {}
    for name in own:
        numbers = [of_rank[name] for of_rank in every]
        usual, count = Counter(numbers).most_common(1)[0]
        if count < comm.size:
            majority = 2 * count > comm.size
            found[name] = [rank for rank, number in enumerate(numbers) if not majority or number != usual]
    return found


def replay(comm: Comm, own: Sequence[Tensor], gradients_of: Callable[[int], Sequence[Tensor]]) -> list[tuple[int, int]]:
    """Let each rank compute the gradients of the next rank again; return the pairs of ranks that disagree.

    comm: of the replicas. All of them call this, before gradients are averaged, with the same parameters.
    own: this rank's gradients, before they are averaged.
    gradients_of: takes a rank, and computes the gradients of its batch again: bit for bit, if nothing is corrupt.

    A pair is (the rank whose gradients they are, the rank that has computed them again). One of the two is wrong. If a
    rank always computes wrongly, it is in two pairs.
    """
    next_rank = (comm.rank + 1) % comm.size
    firsts = comm.allgather([fingerprint(g) for g in own])
    again = comm.allgather([fingerprint(g) for g in gradients_of(next_rank)])
    pairs = [((rank + 1) % comm.size, rank) for rank in range(comm.size)]
    return sorted((rank, other) for rank, other in pairs if firsts[rank] != again[other])
