"""The bucketed communicator: gradients are summed while others are still being computed, as PyTorch's DDP does it."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from mpcourse.data_parallel.communicator import Communicator, Trained, not_finite, trained
from mpcourse.data_parallel.nodes import Nodes
from mpcourse.data_parallel.packing import Packing, fill
from mpcourse.data_parallel.pending import PendingRows

BUCKET, FIRST_BUCKET = 25 << 20, 1 << 20  # bytes, of Li et al., "PyTorch Distributed", VLDB 2020


class Bucket:
    """Some parameters, and the rows of numbers that their gradients lie in."""

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        self.parameters, self.packing = parameters, Packing(parameters)
        self.views = dict(zip(parameters, self.packing.views, strict=True))
        self.arrived: set[torch.Tensor] = set()  # whose gradients of this step are here
        self.sum: PendingRows | None = None  # under way

    @property
    def full(self) -> bool:
        return len(self.arrived) == len(self.parameters)

    def put(self, p: torch.Tensor, scale: float) -> None:
        """p.grad, scaled, lies in this bucket from now on; zeros where p has none."""
        view = self.views[p]
        fill(view, p.grad, scale)
        p.grad = view
        self.arrived.add(p)

    def finish(self) -> None:
        assert self.sum is not None
        self.sum.wait()
        self.sum, self.arrived = None, set()


class BucketedCommunicator(Communicator):
    """Sums buckets of gradients as soon as they are full, the last layers' first, while backward goes on.

    A bucket is closed as soon as it holds `bucket_bytes`, the first one `first_bucket_bytes`: many short sums cost
    latency, one long one begins too late. Gradients are views of their bucket. Without `attach`, or for gradients that
    no backward pass announced, nothing is hidden, and the result is the same.
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
        self._begun = self._tag = 0  # so many buckets, of this step, are being summed, and rows
        self._bad: str | None = None  # a gradient of this step that is not finite, by name
        self._syncing = True

    def attach(self, model: Trained) -> None:
        """Sum these parameters' gradients during each backward pass from now on. All ranks call it, with one model."""
        for handle in self._handles:
            handle.remove()
        self._names = {p: name for name, p in trained(model).items()}
        self.buckets = [Bucket(each) for each in self._divided(list(self._names))]
        self._bucket_of = {p: b for b in self.buckets for p in b.parameters}
        self._handles = [p.register_post_accumulate_grad_hook(self._arrived) for p in self._names]

    def mean_gradients(self, model: Trained, examples: int | None = None) -> None:
        """As of every communicator. What backward has announced is being summed already."""
        held = trained(model)
        if set(held.values()) != set(self._bucket_of):
            super().mean_gradients(held, examples)
            return
        rest = {name: p for name, p in held.items() if p not in self._bucket_of[p].arrived}
        missing = self._agree("averages gradients", held, examples, self._bad or not_finite(rest))
        for p in rest.values():
            self._bucket_of[p].put(p, 1 / self.size)
        self._go_on()
        for bucket in self.buckets:
            bucket.finish()
        for name in missing:
            held[name].grad = None
        self._begun, self._tag, self._bad = 0, 0, None

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
        bucket.put(p, 1 / self.size)
        self._go_on()

    def _go_on(self) -> None:
        """Begin to sum what is full, in the order of buckets, as all ranks do; move on what was begun."""
        while self._begun < len(self.buckets) and self.buckets[self._begun].full:
            bucket = self.buckets[self._begun]
            if self._bad is None:  # only now: in the sum nobody can tell whose it was
                self._bad = not_finite({self._names[p]: p for p in bucket.parameters})
            rows = bucket.packing.rows
            bucket.sum = PendingRows(self.under_way, rows, self._tag)
            self._tag += len(rows)
            self._begun += 1
        for bucket in self.buckets[: self._begun]:
            if bucket.sum:
                bucket.sum.poll()
