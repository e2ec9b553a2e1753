"""Stages 2 and 3 as they are used in practice: messages are in flight while a rank computes."""

from collections.abc import Iterable

import torch

from mpcourse.common.comm import Comm
from mpcourse.zero.gradients import ShardedGradients
from mpcourse.zero.parameters import ShardedParameters
from mpcourse.zero.requests import AllGather, ReduceScatter


class _Overlapping(ShardedGradients):
    """The gradients of one unit are in flight while backward computes those of the next."""

    _summing: tuple[int, ReduceScatter] | None = None

    def _begin(self) -> None:
        self._apart: Comm = self.comm.Dup()  # for what is in flight while other messages are sent
        super()._begin()

    def zero_grad(self) -> None:
        """Forget all gradients, including those of a backward pass that has failed. All ranks call it."""
        self._finish_sum()
        super().zero_grad()

    def _arrived(self, p: torch.Tensor) -> None:
        super()._arrived(p)
        if self._summing is not None:
            self._summing[1].test()

    def _sum(self, i: int, flat: torch.Tensor) -> None:
        self._finish_sum()  # one at a time, because each takes as much memory as two units
        self._summing = i, ReduceScatter(self._apart, flat, tag=len(self.units) + i)

    def _end_pass(self) -> None:
        super()._end_pass()
        self._finish_sum()

    @torch.no_grad()
    def _finish_sum(self) -> None:
        if self._summing is not None:
            i, request = self._summing
            self._summing = None
            self._keep(i, self._mean_of(request.wait()))


class OverlappedGradients(_Overlapping):
    """A sharded optimizer, stage 2, whose sums of gradients are in flight while backward continues.

    All ranks make one together.

    make_optimizer: makes a torch optimizer of groups, e.g. `lambda groups: AdamW(groups, lr=1e-3)`; it must update each
    element by itself.
    parameters: a module, tensors or groups, the same on all ranks. Their values, and a module's buffers, become those
    of the first rank. Frozen parameters are not sharded; a tied parameter is sharded once.
    comm: mpi4py's communicator, or a virtual rank's: the ranks that share state and gradients.
    replicas: the ranks that own the same shards in other such groups, where sharding stays within nodes
    (`within_nodes`); None: there are no others.
    master: dtype of the copies of shards that the optimizer updates, e.g. float32 for bfloat16 parameters; None: it
    updates the parameters themselves.
    bucket_bytes: size at which a unit, of parameters that are sent together, is closed.

    It sends as many values as `ShardedGradients`, and its results are equal up to rounding.
    Raises ValueError, on every rank, for an optimizer that is not element-wise, for models that differ in shape, for
    optimizers that differ in their options, and where nothing is trained.
    """


class PrefetchedParameters(_Overlapping, ShardedParameters):
    """A sharded optimizer, stage 3, that gathers ahead: the next layer's parameters arrive while a layer computes.

    All ranks make one together.

    make_optimizer: makes a torch optimizer of groups, e.g. `lambda groups: AdamW(groups, lr=1e-3)`; it must update each
    element by itself.
    parameters: a module, tensors or groups, the same on all ranks. Their values, and a module's buffers, become those
    of the first rank. Frozen parameters are not sharded; a tied parameter is sharded once.
    comm: mpi4py's communicator, or a virtual rank's: the ranks that share all.
    layers: modules that each compute at once, in about the order in which forward runs them. Every trained parameter
    belongs to one of them, or to several where it is tied. None: those children of `parameters`, which is a module,
    that have parameters.
    replicas: the ranks that own the same shards in other such groups, where sharding stays within nodes
    (`within_nodes`); None: there are no others.
    master: dtype of the copies of shards that the optimizer updates, e.g. float32 for bfloat16 parameters; None: it
    updates the parameters themselves.

    The next layer is the following one in `layers` in forward, and the preceding one in backward. Sums of gradients are
    in flight meanwhile, too. There is memory for two layers' parameters. It sends as many values as
    `ShardedParameters`, and its results are equal up to rounding.
    Raises ValueError for trained parameters outside of all layers, and, on every rank, for an optimizer that is not
    element-wise, for models that differ in shape, for optimizers that differ in their options, and where nothing is
    trained.
    Source: FSDP (Zhao et al. 2023, section 3.3).
    """

    def _begin(self) -> None:
        self._coming: dict[int, AllGather] = {}  # units that are in flight
        super()._begin()

    def _before_forward(self, number: int) -> None:
        super()._before_forward(number)
        if self._sent is None:  # otherwise a checkpoint runs the layer again, within backward
            self._prefetch(number + 1)

    def _before_backward(self, number: int) -> None:
        super()._before_backward(number)
        self._prefetch(number - 1)

    @torch.no_grad()
    def _prefetch(self, number: int) -> None:
        """Begin to gather a layer, if there is one with this number."""
        if not 0 <= number < len(self.layers):
            return
        for i in self._needed[number]:
            if i not in self._here and i not in self._coming:
                self._allocate(i)
                self._coming[i] = AllGather(self._apart, self.flats[i], tag=i)

    def _gather(self, units: Iterable[int]) -> None:
        units = list(units)
        self._arrive(units)
        super()._gather(units)

    def _free(self, units: Iterable[int]) -> None:
        units = list(units)
        self._arrive(units)  # until then MPI writes there
        super()._free(units)

    def _arrive(self, units: Iterable[int]) -> None:
        for i in units:
            if (request := self._coming.pop(i, None)) is not None:
                request.wait()
                self._here.add(i)
