"""Buckets of gradients are averaged while other gradients are still being computed, as in PyTorch's DDP."""

import contextlib
import os
import traceback
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import torch

from mpcourse.collectives.fast.shared_buffer import on_one_machine
from mpcourse.common.comm import Comm
from mpcourse.data_parallel.checked.finite import first_not_finite
from mpcourse.data_parallel.communicator import Communicator
from mpcourse.data_parallel.nodes import Nodes
from mpcourse.data_parallel.overlap.bucket import Bucket
from mpcourse.data_parallel.overlap.gradient_fusion import offer, withdraw
from mpcourse.data_parallel.overlap.hooks import when_accumulated
from mpcourse.data_parallel.parameters import Model, check_dense, same_tensors, trained_parameters
from mpcourse.virtual import MPI, mpi_of

CHECKPOINT = os.path.join("torch", "utils", "checkpoint.py")
BUCKET, FIRST_BUCKET = 25 << 20, 1 << 20  # bytes, from Li et al., "PyTorch Distributed", VLDB 2020


class BucketedCommunicator(Communicator):
    """Begins the all-reduce of a bucket of gradients as soon as it is full, the last layers' first, during backward.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks make one together.
    nodes: this rank's node and place in it, from `nodes_of(comm)`.
    bucket_bytes: a bucket is closed as soon as it holds so many bytes: many short all-reduces cost latency, and one
    long all-reduce begins too late.
    first_bucket_bytes: of the first bucket, which backward reaches first.

    Gradients are views of their bucket, and must not be changed between backward and their mean. Those of layers of
    `fuse_weight_gradients` are computed there. Without `attach`, or for gradients that no backward pass announced,
    nothing overlaps, and the result is the same.
    Raises ValueError for fewer than 1 byte.
    """

    name = "bucketed"

    def __init__(
        self, comm: Comm, nodes: Nodes, bucket_bytes: int = BUCKET, first_bucket_bytes: int = FIRST_BUCKET
    ) -> None:
        super().__init__(comm, nodes)
        if min(bucket_bytes, first_bucket_bytes) < 1:
            raise ValueError(f"buckets of {bucket_bytes} and {first_bucket_bytes} bytes: 1 byte is the least")
        self.overlap_comm = comm.Dup()  # for what is in flight while other messages are sent
        self.bucket_bytes, self.first_bucket_bytes = bucket_bytes, first_bucket_bytes
        self.buckets: list[Bucket] = []
        self.begun = 0  # buckets of this step that are in flight
        self.not_finite: str | None = None  # name of a gradient of this step that is not finite
        self._tags: list[int] = []  # the first tag of each bucket
        self._bucket_of: dict[torch.Tensor, Bucket] = {}
        self._names: dict[torch.Tensor, str] = {}
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._syncing = True

    def attach(self, model: Model) -> None:
        """Average these parameters' gradients during each backward pass from now on. All ranks call it.

        model: a module, or its parameters, by name or in a list; the same on all ranks.
        Raises RuntimeError between a backward pass whose gradients are being averaged and their mean.
        """
        self.check_idle()
        self.detach()
        self._names = {p: name for name, p in trained_parameters(model).items()}
        shared = self._shared_memory_comm()
        self.buckets = [Bucket(each, shared) for each in self._divided(list(self._names))]
        counts = [len(bucket.flat.buffers) for bucket in self.buckets]
        self._tags = [sum(counts[:i]) for i in range(len(counts))]
        self._bucket_of = {p: bucket for bucket in self.buckets for p in bucket.parameters}
        self._handles = [when_accumulated(p, self._arrived) for p in self._names]
        for p in self._names:
            offer(p, self.place)

    def detach(self) -> None:
        """Stop backward passes from beginning any all-reduce from now on."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for p in self._names:
            withdraw(p, self.place)

    def place(self, p: torch.Tensor) -> torch.Tensor | None:
        """Return where a parameter's gradient may be computed now; None: in its own memory. Any rank may call it.

        p: a parameter that was attached.
        """
        return self._bucket_of[p].place(p)

    def check_idle(self) -> None:
        """Raise RuntimeError between a backward pass whose gradients are being averaged and their mean."""
        if any(bucket.arrived for bucket in self.buckets):
            raise RuntimeError(
                "the gradients of a backward pass are being averaged: step first, or make another communicator"
            )

    def mean_gradients(self, model: Model) -> None:
        """Replace every parameter's gradient by its mean over all ranks. All ranks call it, after backward.

        model: a module, or its parameters, by name or in a list; the same on all ranks.

        What backward has announced is already in flight. Parameters may have been frozen since they were attached, or
        be trained only now. Then nothing overlaps for a bucket that holds a frozen parameter, nor for new parameters.
        """
        parameters = trained_parameters(model)
        if not self.holds(parameters):
            super().mean_gradients(parameters)
            return
        self.add_late()
        self.finish(keep=self.others(parameters))
        if new := self.unknown(parameters):
            super().mean_gradients(new)

    def holds(self, parameters: Mapping[str, torch.Tensor]) -> bool:
        """Return whether some of these parameters were attached. Any rank may call it.

        parameters: by name.
        """
        return same_tensors(parameters.values(), self._names) or not set(parameters.values()).isdisjoint(self._names)

    def unknown(self, parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return those parameters that were not attached, by name. Any rank may call it.

        parameters: by name.
        """
        return {name: p for name, p in parameters.items() if p not in self._bucket_of}

    def others(self, parameters: Mapping[str, torch.Tensor]) -> dict[torch.Tensor, torch.Tensor | None]:
        """Return attached parameters that are not among these, with the gradients that they keep. Any rank may call it.

        parameters: by name.
        """
        asked = set(parameters.values())
        return {p: p.grad for p in self._names if p not in asked}

    def add_late(self) -> bool:
        """Count as arrived what no backward pass has announced; return whether there was any."""
        if self.begun == len(self.buckets):  # the usual case
            return False
        late = [p for p in self._names if p not in self._bucket_of[p].arrived]
        for p in late:
            self._bucket_of[p].arrived.add(p)
        self._look(late)
        return bool(late)

    def changed(self) -> str | None:
        """Return the name of a parameter whose gradient was changed since its all-reduce began, and how, or None."""
        changed = (bucket.changed() for bucket in islice(self.buckets, self.begun))
        return next((f"{self._names[p]!r} was {how_changed(p)}" for p in changed if p is not None), None)

    def made_not_finite(self) -> tuple[int, str] | None:
        """Return rank and parameter whose gradient made a sum of the last step infinite or NaN, where seen late."""
        for bucket in self.buckets:
            if place := bucket.not_finite():
                rank, p = place
                return rank, self._names[p]
        return None

    def drop(self, model: Model) -> None:
        """Forget the gradients of this step. All ranks call it, and then set them to zero or None.

        model: a module, or its parameters, by name or in a list; the same on all ranks.
        """
        if self.has_arrived(model):
            self.discard(max(begun for (begun,) in self.exchange("drops gradients", self.begun)))

    def has_arrived(self, model: Model) -> bool:
        """Return whether a backward pass has announced gradients of these parameters.

        model: a module, or its parameters, by name or in a list.
        """
        arrived = any(bucket.arrived for bucket in self.buckets)
        return arrived and not set(trained_parameters(model).values()).isdisjoint(self._names)

    def discard(self, most: int) -> None:
        """Wait for what is in flight, and forget this step's gradients. All ranks call it.

        most: number of buckets that some rank has begun; then all ranks begin so many.
        """
        for bucket in self.buckets[:most]:
            bucket.arrived.update(bucket.parameters)
        for bucket in self.buckets[most:]:
            bucket.arrived.clear()  # it may be full, behind one that is not
        self.finish(keep={p: None for p in self._names if p.grad is None})

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let backward passes within only add to this rank's own gradients; nothing is averaged."""
        before, self._syncing = self._syncing, False
        try:
            yield
        finally:
            self._syncing = before

    def progress(self) -> None:
        """Let all-reduces that are in flight proceed, without waiting. A rank may call it at any time."""
        super().progress()
        for bucket in islice(self.buckets, self.begun):
            bucket.test()

    def finish(self, keep: Mapping[torch.Tensor, torch.Tensor | None]) -> None:
        """Begin buckets that are full, wait for all, and prepare for the next step. All ranks call it.

        keep: attached parameters that get another gradient than the mean, each with that gradient.
        """
        self._begin_full()
        for bucket in self.buckets:
            bucket.finish()
        for p, gradient in keep.items():
            p.grad = gradient
        self.begun, self.not_finite = 0, None

    def _divided(self, parameters: list[torch.Tensor]) -> list[list[torch.Tensor]]:
        """Divide parameters into buckets, from the last to the first, about as backward reaches them."""
        buckets: list[list[torch.Tensor]] = [[]]
        nbytes, most = 0, self.first_bucket_bytes
        for p in reversed(parameters):
            if nbytes >= most:
                buckets.append([])
                nbytes, most = 0, self.bucket_bytes
            buckets[-1].append(p)
            nbytes += p.nbytes
        return [each for each in buckets if each]

    def _arrived(self, p: torch.Tensor) -> None:
        """Record that backward has added to p.grad for the last time in this pass."""
        check_dense(self._names[p], p)
        bucket = self._bucket_of[p]
        if p in bucket.arrived:
            raise RuntimeError(f"{self._reached(self._names[p])}. {self._remedy()}")
        if not self._syncing:
            return
        bucket.arrived.add(p)
        if bucket.full:
            self._look(bucket.parameters)
            self._begin_full()
        elif self.begun:
            self.progress()

    def _reached(self, name: str) -> str:
        within = "" if self._syncing else " within no_sync()"
        return f"a second backward pass{within} reached {name!r}, whose gradient is being averaged since the first"

    def _remedy(self) -> str:
        """Say what to do, as far as the reason for a second pass can be seen from here."""
        frames = traceback.extract_stack()
        if any(f.name == "backward" and f.filename.endswith(CHECKPOINT) for f in frames):
            return (
                "It is used in several checkpoints, and with use_reentrant=True each of them runs a backward pass of "
                "its own: take use_reentrant=False"
            )
        if not self._syncing:
            return "Of several passes before one step, run the last one outside of no_sync(), and all before it within"
        return "Of several passes before one step, run all but the last within no_sync(). Or was a step left out?"

    def _look(self, parameters: Iterable[torch.Tensor]) -> None:
        """Check that gradients are finite, while their rank is still known. Sums in shared memory are checked there."""
        if self.not_finite is None and not (self.buckets and self.buckets[0].shared_buffers):
            self.not_finite = first_not_finite({self._names[p]: p.grad for p in parameters})

    def _shared_memory_comm(self) -> Comm | None:
        """Return the ranks whose shared memory holds buckets, if all share a machine without GPUs; all call it."""
        if mpi_of(self.comm) is MPI:
            return None
        own = self.inter_size == 1 < self.size and all(p.device.type == "cpu" for p in self._names)
        return self.overlap_comm if all(self.comm.allgather(own)) and on_one_machine(self.comm) else None

    def _begin_full(self) -> None:
        """Begin full buckets, in the order that is the same on all ranks, and let what is in flight proceed."""
        while self.begun < len(self.buckets) and self.buckets[self.begun].full:
            self.buckets[self.begun].start(self.overlap_comm, self._tags[self.begun], 1 / self.size)
            self.begun += 1
        self.progress()


def how_changed(p: torch.Tensor) -> str:
    """Say what happened to p.grad where it no longer is what is being averaged.

    p: a parameter.
    """
    return "set to None" if p.grad is None else "changed"
