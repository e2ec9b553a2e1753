"""Stage 2: each rank keeps only its own shard of the gradients, too."""

import weakref
from functools import partial

import torch

from mpcourse.data_parallel.overlap.hooks import when_accumulated
from mpcourse.data_parallel.parameters import check_dense
from mpcourse.zero.freed import FreedGradient
from mpcourse.zero.hooks import at_end_of_backward
from mpcourse.zero.in_step import PASS
from mpcourse.zero.optimizer import ShardedOptimizer


class ShardedGradients(ShardedOptimizer):
    """A sharded optimizer whose gradients are summed during backward, unit by unit; each rank keeps its chunks.

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

    As soon as backward has computed all gradients of a unit, they are reduce-scattered over all ranks, and what belongs
    to other ranks is freed. Units are sent from the last to the first, about the order in which backward reaches them.
    This order is the same on all ranks, so a unit that is complete early waits. A parameter that a backward pass does
    not reach counts as zeros. Of P parameters over p ranks, each rank sends P (p - 1) / p values in each backward pass,
    and as many in the step. Where several passes come before a step, each of them sends, because there is no room in
    which whole gradients could add up. A pass reaches some parameter on all ranks, or on none.
    `step` raises RuntimeError where no backward pass came before it. Raises ValueError, on every rank, for an optimizer
    that is not element-wise, for models that differ in shape, for optimizers that differ in their options, and where
    nothing is trained.
    Source: ZeRO (Rajbhandari et al. 2020), P_os+g, section 5.2.
    """

    def _begin(self) -> None:
        self.own: list[torch.Tensor | None] = [None] * len(self.units)  # this rank's chunks, once they exist
        at = {p: i for i, p in enumerate(self.names)}
        self._order = sorted(range(len(self.units)), key=lambda i: -at[self.units[i].parameters[-1]])
        self._unit_of = {p: i for i, unit in enumerate(self.units) for p in unit.parameters}
        self._handles = [when_accumulated(p, self._arrived) for p in self._unit_of]
        self._freed = {p: FreedGradient.of(p) for p in self._unit_of}
        for p in self._unit_of:
            p.register_hook(partial(_make_room, weakref.ref(p)))
        self._forget_pass()

    def zero_grad(self) -> None:
        """Forget all gradients, including those of a backward pass that has failed. All ranks call it."""
        self._forget_pass()
        self._left_out.drop(self._unit_of, lambda p: isinstance(p.grad, FreedGradient))
        self._forget_mean()
        self.own = [None] * len(self.units)
        for p in self._unit_of:
            p.grad = None

    def _mean(self, i: int) -> torch.Tensor:
        own = self.own[i]
        if own is None:
            raise RuntimeError("there are no gradients: a backward pass comes before each step")
        return own

    def _forget_pass(self) -> None:
        """Note that no backward pass is running."""
        self._sent: int | None = None  # number of units that this pass has sent; None: no pass is running
        self._whole: dict[int, torch.Tensor] = {}  # by unit: gradients that are not yet summed
        self._missing = [set(unit.parameters) for unit in self.units]  # parameters without a gradient from this pass

    @torch.no_grad()
    def _arrived(self, p: torch.Tensor) -> None:
        """Move p.grad, which backward has computed, to its place in its unit."""
        assert p.grad is not None
        check_dense(self.names[p], p)
        self._begin_pass()
        i = self._unit_of[p]
        if i not in self._whole:
            self._whole[i] = self.units[i].empty()
        self.units[i].view(self._whole[i], p).copy_(p.grad)
        p.grad = None
        self._missing[i].discard(p)
        assert self._sent is not None
        while self._sent < len(self._order) and not self._missing[self._order[self._sent]]:
            self._send_next()

    def _begin_pass(self) -> None:
        if self._sent is None:
            self._in_step.check(PASS)
            self._sent, self.averaged = 0, False
            at_end_of_backward(self._end_pass)

    @torch.no_grad()
    def _end_pass(self) -> None:
        """Send the remaining units, which this pass has not reached in full."""
        while self._sent != len(self._order):
            self._send_next()
        self._forget_pass()
        self._hide_gradients()

    def _hide_gradients(self) -> None:
        for p, freed in self._freed.items():
            p.grad = freed

    def _send_next(self) -> None:
        assert self._sent is not None
        self._send(self._order[self._sent])
        self._sent += 1

    def _send(self, i: int) -> None:
        """Sum unit i's gradients, with zeros for those that were not reached."""
        flat = self._whole.pop(i, None)
        if flat is None:
            flat = self.units[i].empty()
        for p in self._missing[i]:
            self.units[i].view(flat, p).zero_()
        self._sum(i, flat)

    def _sum(self, i: int, flat: torch.Tensor) -> None:
        """Add the mean over all ranks of unit i's gradients to this rank's chunk, and free the rest."""
        self._keep(i, self._reduced(self.units[i], flat).clone())

    def _keep(self, i: int, own: torch.Tensor) -> None:
        before = self.own[i]
        self.own[i] = own if before is None else before.add_(own)


def _make_room(of: weakref.ref[torch.Tensor], _: torch.Tensor) -> None:
    """Forget, before backward adds to p.grad, that an earlier gradient was freed."""
    if (p := of()) is not None and isinstance(p.grad, FreedGradient):
        p.grad = None
