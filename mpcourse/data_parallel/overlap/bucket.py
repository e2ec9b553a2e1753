"""One bucket: gradients that are summed together, in place, and how their all-reduce begins and ends."""

import itertools

import torch

from mpcourse.collectives.fast.nonblocking import Request
from mpcourse.collectives.fast.shared_buffer import SharedBuffer
from mpcourse.common.comm import Comm
from mpcourse.data_parallel.checked.finite import Sample
from mpcourse.data_parallel.flat_buffers import FlatBuffers, write_scaled
from mpcourse.data_parallel.overlap.requests import BufferAllreduces
from mpcourse.virtual import mpi_of


class Bucket:
    """Some parameters, and the flat buffers in which their gradients are summed over all ranks.

    All ranks make one together.

    parameters: of any shapes, floating point.
    shared: mpi4py's communicator, of ranks on one machine whose shared memory holds the buffers; None: each rank's own
    memory holds them.
    arrived: parameters whose gradients of this step have arrived.
    views: each parameter's place.
    span: when the last all-reduce began, and when this rank saw its end, in seconds of MPI's clock (Wtime).
    """

    def __init__(self, parameters: list[torch.Tensor], shared: Comm | None = None) -> None:
        self.parameters, self.arrived = parameters, set[torch.Tensor]()
        self._fused = set[torch.Tensor]()  # parameters whose gradient is computed in its place in this step
        self.shared_buffers: list[tuple[SharedBuffer, list[torch.Tensor]]] = []  # each with the parameters in it
        self.requests: list[Request] = []  # in flight
        self._given: list[tuple[torch.Tensor, torch.Tensor, int]] = []  # gradients in flight, with their versions
        self._sample: tuple[torch.Tensor, Sample] | None = None  # of a parameter's gradient in flight
        self.span, self._over = (0.0, 0.0), True

        def make_buffer(length: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
            if shared is None:
                return torch.zeros(length, dtype=dtype, device=device)
            inside = [p for p in laid if p.dtype == dtype]
            self.shared_buffers.append((SharedBuffer(shared, [p.numel() for p in inside], dtype), inside))
            return self.shared_buffers[-1][0].buffer.data  # it has its own version: see `start`

        # The largest comes first: then its place begins with a cache line, and whole lines can be written.
        laid = sorted(parameters, key=torch.Tensor.numel, reverse=True)
        self.flat = FlatBuffers(laid, make_buffer)
        self.views = dict(zip(laid, self.flat.views, strict=True))

    @property
    def full(self) -> bool:
        """Whether the gradients of all its parameters have arrived."""
        return len(self.arrived) == len(self.parameters)

    def place(self, p: torch.Tensor) -> torch.Tensor | None:
        """Return where p's gradient may be computed: its view here, once a step; None if that memory is still needed.

        p: one of the bucket's parameters.

        Still needed may be p.grad, or this step's sum; or, where p is used twice, the gradient of the other use, to
        which autograd adds this one.
        """
        if p.grad is not None or self.requests or p in self._fused:
            return None
        self._fused.add(p)
        return self.views[p].data  # it has its own version: see `start`

    def start(self, comm: Comm, tag: int, scale: float) -> None:
        """Write all gradients into their places, zeros for None, and begin to sum them.

        All ranks call it, for their buckets in the same order.

        comm: mpi4py's communicator, or a virtual rank's; nothing else in it may use the same tags.
        tag: the first of as many tags as the bucket has buffers, which its all-reduces take.
        scale: each element is multiplied by it.
        """
        self._clock, self._over = mpi_of(comm).Wtime, False
        self.span = (self._clock(),) * 2
        for buffer, inside in self.shared_buffers:
            for p in inside:
                if p.grad is None:
                    self.views[p].zero_()
            buffer.start([self.views[p] if p.grad is None else p.grad.data for p in inside], scale)
        if self.shared_buffers:
            self.requests = [buffer for buffer, _ in self.shared_buffers]
        else:
            for p, view in self.views.items():
                write_scaled(view, p.grad, scale)
            self.requests = [BufferAllreduces(comm, [buffer.data for buffer in self.flat.buffers], tag)]
        # What is summed are tensors with their own versions, so a gradient's version changes only if other code writes
        # to it.
        self._given = [(p, p.grad, p.grad._version) for p in self.parameters if p.grad is not None]
        # GradScaler.unscale_ changes all gradients without changing versions. So a sample of one is kept: the smallest
        # that is not summed in place.
        apart = [p for p, given, _ in self._given if given.data_ptr() != self.views[p].data_ptr()]
        least = min(apart, key=torch.Tensor.numel, default=None)
        self._sample = None if least is None or least.grad is None else (least, Sample(least.grad))

    def changed(self) -> torch.Tensor | None:
        """Return a parameter whose gradient was changed since its all-reduce began, or None."""
        if self._sample is not None:
            p, sample = self._sample
            if p.grad is not None and sample.differs(p.grad):
                return p
        return next((p for p, given, version in self._given if p.grad is not given or given._version != version), None)

    def test(self) -> None:
        """Proceed as far as possible without waiting."""
        if not self._over and all([request.test() for request in self.requests]):
            self.span, self._over = (self.span[0], self._clock()), True

    def finish(self) -> None:
        """Wait for the sums; gradients are views of them from now on."""
        for request in self.requests:
            request.wait()
        self.test()
        for p, view in self.views.items():
            p.grad = view
        self.requests, self.arrived, self._given, self._sample, self._fused = [], set(), [], None, set()

    def not_finite(self) -> tuple[int, torch.Tensor] | None:
        """Return rank and parameter whose gradient made a sum in shared memory infinite or NaN, or None."""
        for buffer, inside in self.shared_buffers:
            if (bad := buffer.bad) is not None:
                rank, place = bad
                ends = itertools.accumulate(p.numel() for p in inside)
                return rank, next(p for p, end in zip(inside, ends, strict=True) if place < end)
        return None
