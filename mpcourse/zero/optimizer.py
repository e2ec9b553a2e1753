"""Stage 1: each rank keeps the optimizer's state of its own shard only, and updates only that shard."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from mpcourse.common.comm import Comm
from mpcourse.data_parallel.checked.fingerprint import check_equal
from mpcourse.data_parallel.checked.left_out import LeftOut
from mpcourse.data_parallel.loss_scaling import AveragedFirst
from mpcourse.data_parallel.parameters import optimizer_tensors
from mpcourse.zero.elementwise import MakeOptimizer, check_elementwise
from mpcourse.zero.freed import FreedGradient
from mpcourse.zero.in_step import STEP, InStep
from mpcourse.zero.messages import (
    all_gather,
    broadcast_from_first,
    check_alike,
    reduce_scatter,
    ring_of,
    sum_over_replicas,
)
from mpcourse.zero.norm import global_norm
from mpcourse.zero.sharding import Parameters, Unit, divided, groups_of, trained
from mpcourse.zero.state import load_parts, part_of

BUCKET = 25 << 20  # bytes


class ShardedOptimizer(AveragedFirst):
    """An optimizer whose state is sharded over the ranks of `comm`. All ranks make one together.

    make_optimizer: makes a torch optimizer of groups, e.g. `lambda groups: AdamW(groups, lr=1e-3)`; it must update each
    element by itself.
    parameters: a module, tensors or groups, the same on all ranks. Their values, and a module's buffers, become those
    of the first rank. Frozen parameters are not sharded; a tied parameter is sharded once.
    comm: mpi4py's communicator, or a virtual rank's: the ranks that share the state.
    replicas: the ranks that own the same shards in other such groups, where sharding stays within nodes
    (`within_nodes`); None: there are no others.
    master: dtype of the copies of shards that the optimizer updates, e.g. float32 for bfloat16 parameters; None: it
    updates the parameters themselves.
    bucket_bytes: size at which a unit, of parameters that are sent together, is closed.

    optimizer: torch's, of this rank's shards; learning rate schedulers take it.
    units: in the order of parameters.

    torch's GradScaler takes this optimizer, too: `scaler.step(sharded, clip=1.0)` skips the step on all ranks where a
    gradient of any rank is not finite.
    Of P parameters, each of p ranks sends 2 P (p - 1) / p values per step, as many as in an all-reduce of gradients.
    Raises ValueError, on every rank, for an optimizer that is not element-wise, for models that differ in shape, for
    optimizers that differ in their options, and where nothing is trained.
    Source: ZeRO (Rajbhandari et al. 2020), P_os, section 5.1.
    """

    def __init__(
        self,
        make_optimizer: MakeOptimizer,
        parameters: Parameters,
        comm: Comm,
        *,
        replicas: Comm | None = None,
        master: torch.dtype | None = None,
        bucket_bytes: int = BUCKET,
    ) -> None:
        check_elementwise(make_optimizer)
        given = groups_of(parameters)
        module = parameters if isinstance(parameters, nn.Module) else None
        held = [p for group in given for p in group["params"]]
        named = module.named_parameters() if module else [(f"parameter {i}", p) for i, p in enumerate(held)]
        self.names = {p: name for name, p in named}
        self.comm, self.replicas, self.ring = comm, replicas, ring_of(comm)
        self.bucket_bytes = bucket_bytes
        self.units: list[Unit] = []
        self.flats: list[torch.Tensor] = []  # all parameters of each unit
        self.shards: list[torch.Tensor] = []  # this rank's chunk of these
        self.masters: list[torch.Tensor] = []  # the same elements, as the optimizer updates them
        self._refused: FloatingPointError | None = None  # what `step` raises if the mean is still not finite
        self._in_step, self._left_out = InStep(comm, self._layer_names(parameters)), LeftOut()
        self._left_out.alone = hasattr(comm, "count")
        check_alike(comm, self.names)
        broadcast_from_first(comm, replicas, [*self.names, *(module.buffers() if module else ())])
        groups = trained(given)
        for group in groups:
            begin = len(self.units)
            for each in self._divided(group["params"]):
                self._add(Unit(each, comm.size), master)
            group["params"] = self.masters[begin:]
        self.optimizer = make_optimizer(groups)
        check_equal(comm, {f"the optimizer's {name}": t for name, t in optimizer_tensors(self.optimizer, {}).items()})
        self._begin()

    @torch.no_grad()
    def step(self, clip: float | None = None) -> float:
        """Average gradients over all ranks, and update. All ranks call it, after backward, and then `zero_grad`.

        clip: the largest 2-norm of all gradients, to which they are scaled as by torch's clip_grad_norm_; None: they
        are not scaled.

        Returns the norm before clipping, the same number on all ranks.
        Raises FloatingPointError, on all ranks, where the mean of gradients is not finite: parameters and state stay as
        they were.
        """
        gradients = self._averaged() if self.averaged else self._means()
        norm, error = global_norm(self, gradients)
        if error is not None:
            raise self._refused or error
        factor = 1.0 if clip is None else min(1.0, clip / (norm + 1e-6))
        # Unit by unit, so that only one unit is copied into the master's dtype: an optimizer skips parameters without a
        # gradient.
        for i, (master, gradient) in enumerate(zip(self.masters, gradients, strict=True)):
            master.grad = (gradient if factor == 1 else gradient.mul_(factor)).to(master.dtype)
            self.optimizer.step()
            master.grad = None
            self._publish(i)
        return norm

    @torch.no_grad()
    def mean_gradients(self) -> None:
        """Average gradients now, before `step`, for torch's GradScaler. All ranks call it, after backward.

        A gradient that is not finite on one rank makes those of all ranks NaN. Then `step` raises FloatingPointError,
        and a GradScaler skips the step.
        """
        for master, gradient in zip(self.masters, self._means(), strict=True):
            master.grad = gradient.to(master.dtype)
        gradients = [master.grad for master in self.masters if master.grad is not None]
        _, self._refused = global_norm(self, gradients)
        if self._refused is not None:
            for gradient in gradients:
                gradient.fill_(float("nan"))
        self._hide_gradients()
        self._now_averaged()

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """What GradScaler unscales: this rank's shards, with the mean of their gradients.

        Raises RuntimeError before `mean_gradients()`. Learning rates are in `optimizer.param_groups` at any time.
        """
        if not self.averaged:
            raise RuntimeError(
                "before unscale_ call the sharded optimizer's mean_gradients(): no rank has gradients to unscale yet. "
                "(Learning rates are in its optimizer.param_groups)"
            )
        return self.optimizer.param_groups

    def zero_grad(self) -> None:
        """Set all gradients to zero, so that those of the next backward passes add up. Any rank may call it."""
        self._forget_mean()
        self._left_out.drop(p for unit in self.units for p in unit.parameters)
        for unit, flat in zip(self.units, self.gradients, strict=True):
            flat.zero_()
            for p, view in zip(unit.parameters, unit.views(flat), strict=True):
                p.grad = view

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's part: its shards, their state, and how they are cut. Any rank may call it."""
        return part_of(self)

    @torch.no_grad()
    def load_state_dicts(self, parts: list[Mapping[str, Any]]) -> None:
        """Restore parameters and state from the parts of all ranks of a run of any size. All ranks call it.

        parts: what `state_dict` returned on rank 0, 1, ... of a run with the same parameters and groups.

        Raises ValueError, before anything changes, where they do not fit.
        """
        load_parts(self, parts)
        for i in range(len(self.units)):
            self._publish(i)

    def _means(self) -> list[torch.Tensor]:
        """Return this rank's chunk of each unit's mean gradients, once all ranks are about to step."""
        own = self._left_out.since_last_mean(p for unit in self.units for p in unit.parameters)
        self._left_out.compare(self._in_step.check(STEP, number=own))
        return [self._mean(i) for i in range(len(self.units))]

    def _averaged(self) -> list[torch.Tensor]:
        """Return what `mean_gradients` left in the masters, and remove it there."""
        gradients = [master.grad for master in self.masters if master.grad is not None]
        self._forget_mean()
        return gradients

    def _forget_mean(self) -> None:
        self.averaged, self._refused = False, None
        for master in self.masters:
            master.grad = None

    # The other stages override the following.

    def _layer_names(self, parameters: Parameters) -> list[str]:
        """Return the names of the layers that are gathered one by one: none in this stage."""
        return []

    def _hide_gradients(self) -> None:
        """Hide what is left of gradients, sums over some of the ranks, so that it is not taken for gradients."""
        for unit, flat in zip(self.units, self.gradients, strict=True):
            for p, view in zip(unit.parameters, unit.views(flat), strict=True):
                p.grad = FreedGradient.of(view)

    def _divided(self, parameters: list[torch.Tensor]) -> list[list[torch.Tensor]]:
        """Return the parameters of each unit."""
        return divided(parameters, self.bucket_bytes)

    @torch.no_grad()
    def _add(self, unit: Unit, master: torch.dtype | None) -> None:
        """Move a unit's parameters into a flat buffer, and own a chunk of it."""
        flat = unit.empty()
        for p, view in zip(unit.parameters, unit.views(flat), strict=True):
            view.copy_(p)
            p.data = view
        self.units.append(unit)
        self.flats.append(flat)
        shard = self._shard(unit, flat)
        self.shards.append(shard)
        self.masters.append(shard.to(master or flat.dtype).requires_grad_())

    def _shard(self, unit: Unit, flat: torch.Tensor) -> torch.Tensor:
        return unit.shard(flat, self.comm.rank)

    @torch.no_grad()
    def _begin(self) -> None:
        """Prepare for the first backward pass."""
        self.gradients = [unit.empty() for unit in self.units]
        self.zero_grad()

    def _mean(self, i: int) -> torch.Tensor:
        """Return this rank's chunk of the mean of unit i's gradients over all ranks; (chunk,). All ranks call it."""
        unit, flat = self.units[i], self.gradients[i]
        for p, view in zip(unit.parameters, unit.views(flat), strict=True):
            if p.grad is None:
                view.zero_()
            elif p.grad.data_ptr() != view.data_ptr():  # p.grad was set to None before backward
                view.copy_(p.grad)
        return self._reduced(unit, flat)

    def _reduced(self, unit: Unit, flat: torch.Tensor) -> torch.Tensor:
        """Return this rank's chunk of the mean over all ranks of a unit's gradients."""
        reduce_scatter(self.ring, flat)
        return self._mean_of(unit.shard(flat, self.comm.rank))

    def _mean_of(self, own: torch.Tensor) -> torch.Tensor:
        """Turn the sum over the ranks of `comm` into the mean over all ranks, in place."""
        sum_over_replicas(self.replicas, own)
        return own.div_(self.comm.size * (self.replicas.size if self.replicas else 1))

    def _publish(self, i: int) -> None:
        """Give all ranks what each has updated of unit i. All ranks call it."""
        self.shards[i].copy_(self.masters[i])
        all_gather(self.ring, self.flats[i])
