"""The two collective calls that all of ZeRO is made of, along a ring, for flat buffers on any device."""

import itertools
from collections.abc import Iterable

import torch

from mpcourse.collectives import allreduce, broadcast, ring_allgather, ring_reduce_scatter
from mpcourse.collectives.buffers import chunks
from mpcourse.common.comm import Comm
from mpcourse.data_parallel.host_staging import on_host


def ring_of(comm: Comm) -> Comm:
    """Return a communicator of the same ranks whose ring ends with chunk r on rank r of `comm`. All ranks call it.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.

    `ring_reduce_scatter` leaves chunk i + 1 on number i, so rank r gets number r - 1.
    """
    return comm.Split(0, (comm.rank - 1) % comm.size)


def reduce_scatter(ring: Comm, flat: torch.Tensor) -> None:
    """Sum chunk r of `flat` over all p ranks on rank r, for each r; other chunks hold partial sums afterwards.

    ring: what `ring_of` made of their communicator; all its p ranks call this.
    flat: (p * chunk,), contiguous, the same length and dtype on all ranks; on any device.

    Each rank sends (p - 1) / p of flat's bytes.
    """
    if (count := getattr(ring, "count", None)) is not None:  # see alone.py
        count("reduce-scatter", flat.nbytes)
        return
    with on_host(flat) as buffer:
        ring_reduce_scatter(ring, chunks(alias(buffer), ring.size))


def all_gather(ring: Comm, flat: torch.Tensor) -> None:
    """Copy chunk r of rank r's `flat` into all other ranks' `flat`, for each r. All ranks call it.

    ring: what `ring_of` made of their communicator; all its p ranks call this.
    flat: (p * chunk,), contiguous, the same length and dtype on all ranks; on any device.

    Each rank sends (p - 1) / p of flat's bytes.
    """
    if (count := getattr(ring, "count", None)) is not None:
        count("all-gather", flat.nbytes)
        return
    with on_host(flat) as buffer:
        ring_allgather(ring, chunks(alias(buffer), ring.size))


def check_alike(comm: Comm, tensors: Iterable[torch.Tensor]) -> None:
    """Raise ValueError, on every rank, unless all ranks have tensors of the same shapes and dtypes. All call it.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    tensors: this rank's, in the order in which they are compared; of any shapes and dtypes.
    """
    by_rank = comm.allgather([f"{tuple(t.shape)} {t.dtype}".replace("torch.", "") for t in tensors])
    for rank, shapes in enumerate(by_rank):
        if shapes != by_rank[0]:
            pairs = itertools.zip_longest(shapes, by_rank[0], fillvalue="nothing")
            i, (here, there) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
            raise ValueError(f"rank {rank} has another model than rank 0: parameter {i} is {here}, and there {there}")


def broadcast_from_first(comm: Comm, replicas: Comm | None, tensors: Iterable[torch.Tensor]) -> None:
    """Copy each tensor of the first rank to all: within `comm`, then over `replicas`. All ranks call it.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    replicas: the ranks with this rank's number in other such communicators; None: there are no others.
    tensors: as many on all ranks, of the same shapes and dtypes; on any device.
    """
    if hasattr(comm, "count"):
        return
    for tensor in tensors:
        with torch.no_grad(), on_host(tensor) as buffer:
            broadcast(comm, buffer)
            if replicas is not None:
                broadcast(replicas, buffer)


def sum_over_replicas(replicas: Comm | None, shard: torch.Tensor) -> None:
    """Sum a shard over the ranks that hold the same one, in place.

    replicas: those ranks, which all call this; None: only this rank holds it.
    shard: of any length and dtype, which are the same on all ranks; on any device.
    """
    if replicas is not None and replicas.size > 1:
        with on_host(shard) as buffer:
            allreduce(replicas, buffer)


def alias(buffer: torch.Tensor) -> torch.Tensor:
    """Return the same memory in a new storage: `resize_` cannot free a storage that numpy has seen.

    buffer: of any shape and dtype, in the host's memory.
    """
    return torch.from_dlpack(buffer)
