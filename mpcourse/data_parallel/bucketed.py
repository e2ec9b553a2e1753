"""The bucketed communicator: gradients are summed while others are still being computed, as PyTorch's DDP does it."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from mpcourse.collectives.fast.shared_memory import on_one_machine
from mpcourse.data_parallel.bucket import Bucket
from mpcourse.data_parallel.communicator import Communicator, Trained, not_finite, same, trained
from mpcourse.data_parallel.hooks import when_accumulated
from mpcourse.data_parallel.in_place import offer, withdraw
from mpcourse.data_parallel.nodes import Nodes
from mpcourse.data_parallel.packing import Packing, gradients, looks_finite
from mpcourse.virtual import MPI, mpi_of

BUCKET, FIRST_BUCKET = 25 << 20, 1 << 20  # bytes, of Li et al., "PyTorch Distributed", VLDB 2020


class BucketedCommunicator(Communicator):
    """Sums buckets of gradients as soon as they are full, the last layers' first, while backward goes on.

    A bucket is closed as soon as it holds `bucket_bytes`, the first one `first_bucket_bytes`: many short sums cost
    latency, one long one begins too late. Gradients are views of their bucket, and not to be changed between backward
    and their mean; those of layers of `write_in_place` are computed there. Without `attach`, or for gradients that no
    backward pass announced, nothing is hidden, and the result is the same.
    """

    name = "bucketed"

    def __init__(
        self, comm: Any, nodes: Nodes, bucket_bytes: int = BUCKET, first_bucket_bytes: int = FIRST_BUCKET
    ) -> None:
        super().__init__(comm, nodes)
        self.bucket_bytes, self.first_bucket_bytes = bucket_bytes, first_bucket_bytes
        self.buckets: list[Bucket] = []
        self._bucket_of: dict[torch.Tensor, Bucket] = {}
        self._handles: list[Any] = []
        self._names: dict[torch.Tensor, str] = {}
        self._begun = 0  # so many buckets, of this step, are being summed
        self._first_tag = self._tag = 0  # of the first row, and of the next one to be summed
        self._bad: str | None = None  # a gradient of this step that is not finite, by name
        self._syncing = True

    def attach(self, model: Trained) -> None:
        """Sum these parameters' gradients during each backward pass from now on. All ranks call it, with one model.

        Raises what `check_idle` does.
        """
        self.check_idle()
        self.detach()
        self._names = {p: name for name, p in trained(model).items()}
        shared = self._shared()
        self.buckets = [Bucket(each, shared) for each in self._divided(list(self._names))]
        self._first_tag = self._tag = self.reserve_tags(sum(len(bucket.packing.rows) for bucket in self.buckets))
        self._bucket_of = {p: b for b in self.buckets for p in b.parameters}
        self._handles = [when_accumulated(p, self._arrived) for p in self._names]
        for p in self._names:
            offer(p, self.place)

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for p in self._names:
            withdraw(p, self.place)

    def place(self, p: torch.Tensor) -> torch.Tensor | None:
        """Where the gradient of p, which was attached, may be computed now; None: in memory of its own."""
        return self._bucket_of[p].place(p)

    def drop(self, model: Trained) -> None:
        """As of every communicator. What is being summed is waited for, and means nothing afterwards: zero it."""
        if not any(bucket.arrived for bucket in self.buckets) or not set(trained(model).values()) & set(self._names):
            return
        most = max(begun for (begun,) in self.roll_call.meet("drops gradients", self._begun, meanwhile=self.progress))
        for bucket in self.buckets[:most]:
            bucket.arrived.update(bucket.parameters)  # so that it is begun, as on some other rank
        for bucket in self.buckets[most:]:
            bucket.arrived.clear()  # full perhaps, behind one that is not
        self._finish({p: None for p in self._names if p.grad is None})

    def check_idle(self) -> None:
        if any(bucket.arrived for bucket in self.buckets):
            raise RuntimeError(
                "the gradients of a backward pass are being averaged: step first, or make another communicator"
            )

    def mean_gradients(self, model: Trained, examples: int | None = None) -> None:
        """As of every communicator. What backward has announced is being summed already.

        Of `model` some parameters may have been frozen since they were attached, or be trained only now. Nothing is
        hidden then where a bucket holds a frozen one, nor of new ones, until they are attached anew.
        """
        held = trained(model)
        new: dict[str, torch.Tensor] = {}
        others: dict[torch.Tensor, torch.Tensor | None] = {}  # what those that are not asked for hold, and keep
        if not same(held.values(), self._names) and (asked := set(held.values())) != set(self._names):
            if asked.isdisjoint(self._names):
                super().mean_gradients(held, examples)
                return
            new = {name: p for name, p in held.items() if p not in self._bucket_of}
            others = {p: p.grad for p in self._names if p not in asked}
        packing = Packing(list(new.values()))
        bad = packing.fill(gradients(new), 1 / self.size)
        done = self._begun == len(self.buckets)  # the usual case: backward has announced all
        late = [] if done else [p for p in self._names if p not in self._bucket_of[p].arrived]
        for p in late:
            self._bucket_of[p].arrived.add(p)
        self._look(late)
        without = {name for name, p in held.items() if p.grad is None} if late or new else set()
        try:
            missing = self._agree(
                "averages gradients", held, examples, self._bad or bad, without, changed=self._changed()
            )
        except FloatingPointError:  # which all ranks are told of: they may leave this batch out, and go on
            self._finish(others)
            raise
        self._finish(others)
        self._tell_bad()
        for row in packing.rows:
            self.sum_row(row)
        packing.hand_over(new, missing)
        for name in missing:
            held[name].grad = None

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it, backward passes only add to this rank's own gradients; nothing is summed."""
        before, self._syncing = self._syncing, False
        try:
            yield
        finally:
            self._syncing = before

    def _divided(self, parameters: list[torch.Tensor]) -> list[list[torch.Tensor]]:
        """Buckets from the last parameter to the first: about the order in which backward reaches them."""
        found: list[list[torch.Tensor]] = [[]]
        held, most = 0, self.first_bucket_bytes
        for p in reversed(parameters):
            if held >= most:
                found.append([])
                held, most = 0, self.bucket_bytes
            found[-1].append(p)
            held += p.nbytes
        return [each for each in found if each]

    def _arrived(self, p: torch.Tensor) -> None:
        """Backward has added to p.grad for the last time in this pass."""
        if not self._syncing:
            return
        bucket = self._bucket_of[p]
        if p in bucket.arrived:
            raise RuntimeError(
                f"a second backward pass reached {self._names[p]!r}, whose gradient is being averaged: was a step "
                "left out? Of several passes before one step, run all but the last within no_sync()"
            )
        bucket.arrived.add(p)
        if bucket.full:
            self._look(bucket.parameters)
            self._go_on()
        elif self._begun:
            self.progress()

    def _look(self, parameters: Iterable[torch.Tensor]) -> None:
        """Whether gradients are finite, before nobody can tell whose was not. Sums in shared memory look themselves."""
        if self._bad is None and not (self.buckets and self.buckets[0].shared_rows):
            held = {self._names[p]: p.grad for p in parameters if p.grad is not None}
            self._bad = next((name for name, gradient in held.items() if not looks_finite(gradient)), None)

    def _shared(self) -> Any:
        """The ranks whose memory buckets lie in, if all are on one machine and none uses a GPU. All ranks call it."""
        if mpi_of(self.comm) is MPI:
            return None
        own = self.inter_size == 1 < self.size and all(p.device.type == "cpu" for p in self._names)
        return self.under_way if all(self.comm.allgather(own)) and on_one_machine(self.comm) else None

    def _changed(self) -> str | None:
        """The name of a parameter whose gradient somebody has changed while it is being averaged."""
        found = (bucket.changed() for bucket in self.buckets[: self._begun])
        return next((self._names[p] for p in found if p is not None), None)

    def _tell_bad(self) -> None:
        for bucket in self.buckets:
            if found := bucket.bad():
                rank, p = found
                raise not_finite(rank, self._names[p])

    def _go_on(self) -> None:
        """Begin to sum what is full, in the order of buckets, as all ranks do; move on what was begun."""
        while self._begun < len(self.buckets) and self.buckets[self._begun].full:
            bucket = self.buckets[self._begun]
            bucket.begin(self.under_way, self._tag, 1 / self.size)
            self._tag += len(bucket.packing.rows)
            self._begun += 1
        self.progress()

    def _finish(self, others: dict[torch.Tensor, torch.Tensor | None]) -> None:
        """Begin what is left, wait for all sums, and be ready for the next step. others: who gets another gradient."""
        self._go_on()
        for bucket in self.buckets:
            bucket.finish()
        for p, gradient in others.items():
            p.grad = gradient
        self._begun, self._tag, self._bad = 0, self._first_tag, None

    def progress(self) -> None:
        """Also while this rank waits in the roll call: the last one would sum before it comes, the others after it."""
        super().progress()
        for bucket in self.buckets[: self._begun]:
            bucket.poll()
