"""One bucket: gradients that are summed together, where they lie, and who was given a place there."""

import itertools
from typing import Any

import torch

from mpcourse.collectives.fast.shared_memory import SharedBuffer
from mpcourse.data_parallel.packing import Packing, fill
from mpcourse.data_parallel.pending import PendingRows
from mpcourse.virtual import mpi_of


class Bucket:
    """Some parameters, and the rows of numbers that their gradients lie in.

    shared: the ranks of one machine, in whose common memory the rows lie; None: in each rank's own. span: when the last
    sum began, and when this rank saw its end, on MPI's clock (Wtime).
    """

    def __init__(self, parameters: list[torch.Tensor], shared: Any = None) -> None:
        self.parameters, self.arrived = parameters, set[torch.Tensor]()  # whose gradients of this step are here
        self._placed = set[torch.Tensor]()  # who was given its place in this step
        # Each with the parameters whose gradients lie there.
        self.shared_rows: list[tuple[SharedBuffer, list[torch.Tensor]]] = []
        self.sums: list[SharedBuffer | PendingRows] = []  # under way
        self._given: list[tuple[torch.Tensor, torch.Tensor, int]] = []  # gradients under way, as they were
        self.span, self._over = (0.0, 0.0), True

        def make_row(length: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
            if shared is None:
                return torch.zeros(length, dtype=dtype, device=device)
            inside = [p for p in laid if p.dtype == dtype]
            self.shared_rows.append((SharedBuffer(shared, [p.numel() for p in inside], dtype), inside))
            return self.shared_rows[-1][0].buffer.data  # which has a version of its own: see `begin`

        # The largest first: then its place begins with a cache line, and it can be written to with whole ones.
        laid = sorted(parameters, key=torch.Tensor.numel, reverse=True)
        self.packing = Packing(laid, make_row)
        self.views = dict(zip(laid, self.packing.views, strict=True))

    @property
    def full(self) -> bool:
        return len(self.arrived) == len(self.parameters)

    def place(self, p: torch.Tensor) -> torch.Tensor | None:
        """Where p's gradient may be computed: its place here, once a step, unless somebody needs what is there.

        That may be p.grad, or this step's sum; or, where p is used twice, the other use's gradient, which autograd will
        add to this one.
        """
        if p.grad is not None or self.sums or p in self._placed:
            return None
        self._placed.add(p)
        return self.views[p].data  # with a version of its own: see `begin`

    def begin(self, comm: Any, tag: int, scale: float) -> None:
        """Write all gradients into their places, zeros for those that are not there, and begin to sum, scaled."""
        self._clock, self._over = mpi_of(comm).Wtime, False
        self.span = (self._clock(),) * 2
        for row, inside in self.shared_rows:
            for p in inside:
                if p.grad is None:
                    self.views[p].zero_()
            row.start([self.views[p] if p.grad is None else p.grad.data for p in inside], scale)
        if self.shared_rows:
            self.sums = [row for row, _ in self.shared_rows]
        else:
            for p, view in self.views.items():
                fill(view, p.grad, scale)
            self.sums = [PendingRows(comm, [row.data for row in self.packing.rows], tag)]
        # What is summed are tensors with versions of their own: these change only where somebody else writes.
        self._given = [(p, p.grad, p.grad._version) for p in self.parameters if p.grad is not None]

    def changed(self) -> torch.Tensor | None:
        """A parameter whose gradient somebody has changed since its sum began, if there is one."""
        return next((p for p, given, version in self._given if p.grad is not given or given._version != version), None)

    def poll(self) -> None:
        if not self._over and all([sum_.test() for sum_ in self.sums]):
            self.span, self._over = (self.span[0], self._clock()), True

    def finish(self) -> None:
        """Wait for the sums; gradients are views of them from now on."""
        for sum_ in self.sums:
            sum_.wait()
        self.poll()
        for p, view in self.views.items():
            p.grad = view
        self.sums, self.arrived, self._given, self._placed = [], set(), [], set()

    def bad(self) -> tuple[int, torch.Tensor] | None:
        """Whose gradient made a sum in shared memory infinite or NaN: a rank's, and of which parameter."""
        for row, inside in self.shared_rows:
            if (found := row.bad) is not None:
                rank, place = found
                ends = itertools.accumulate(p.numel() for p in inside)
                return rank, next(p for p, end in zip(inside, ends, strict=True) if place < end)
        return None
