"""Checks whether all ranks hold the same model. What differs, e.g. after a forgotten broadcast, is named on all."""

import hashlib
from collections.abc import Mapping

import torch

from mpcourse.common.comm import Comm
from mpcourse.data_parallel.host_staging import bytes_of

Named = Mapping[str, torch.Tensor]


def check_alike(comm: Comm, named: Named, what: str = "parameter") -> None:
    """Raise ValueError, on every rank, where names, shapes, dtypes or requires_grad differ between ranks.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    named: this rank's tensors, by name. Their values are not compared.
    what: how errors call a tensor.
    """
    by_rank = comm.allgather(_described(named))
    for rank, theirs in enumerate(by_rank):
        if theirs == by_rank[0]:
            continue
        if len(theirs) != len(by_rank[0]):
            raise ValueError(
                f"rank {rank} has {len(theirs)} {what}s and rank 0 has {len(by_rank[0])}: all ranks need the same model"
            )
        mine, other = next((a, b) for a, b in zip(by_rank[0], theirs, strict=True) if a != b)
        raise ValueError(
            f"{what} {mine[0]!r} is {_describe(mine)} on rank 0, and {_describe(other, mine)} on rank {rank}: all "
            "ranks need the same model"
        )


def check_equal(comm: Comm, named: Named) -> None:
    """Raise ValueError, on every rank, where values differ or only some ranks have one. The error names the first.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    named: this rank's tensors, by the names that errors use.
    """
    own = {name: hashlib.blake2b(bytes_of(t), digest_size=8).digest() for name, t in named.items()}
    by_rank = comm.allgather(own)
    for name in {name: None for held in by_rank for name in held}:
        for rank, theirs in enumerate(by_rank):
            if theirs.get(name) != by_rank[0].get(name):
                raise ValueError(
                    f"{name} is not the same on rank {rank} as on rank 0: broadcast_parameters first, load a "
                    "checkpoint on every rank, and change no rank's values alone"
                )


def fingerprint(named: Named) -> int:
    """Return a number of 63 bits that is equal for tensors with equal names, shapes, dtypes and requires_grad.

    named: tensors, by name. Any rank may call this.
    """
    description = repr(_described(named)).encode()
    return int.from_bytes(hashlib.blake2b(description, digest_size=8).digest(), "big") >> 1


def _described(named: Named) -> list[tuple]:
    return [(name, tuple(t.shape), str(t.dtype).removeprefix("torch."), t.requires_grad) for name, t in named.items()]


def _describe(one: tuple, beside: tuple = ()) -> str:
    name, shape, dtype, learns = one
    text = f"{shape} {dtype}" + ("" if learns else ", frozen")
    return f"{name!r}, {text}" if beside and name != beside[0] else text
