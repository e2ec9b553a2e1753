"""Dynamic loss scaling over ranks: gradients are averaged first, and torch's GradScaler checks their means.

Float16 has no number between 0 and 6e-8, so small gradients would become 0. Therefore the loss is multiplied by a
scale before backward, and gradients are divided by it before the step (Micikevicius et al., "Mixed Precision Training",
2018). The scale is found by trial: a scale that is too large makes some gradient infinite. Then the step is skipped,
and the scale is halved; after 2000 steps without an infinity it is doubled. The program is that of one process:

    scaler = torch.amp.GradScaler("cuda")            # on each rank
    ...
    scaler.scale(loss).backward()
    optimizer.mean_gradients()                       # needed only before unscale_
    scaler.unscale_(optimizer)                       # needed only before clipping
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()

All ranks must skip the same steps, and have the same scale. If each rank checked its own gradients, a rank that finds
an infinity would skip the step alone, and the others would wait in their all-reduce. But a sum to which one rank adds
an infinity is infinite, or NaN, on all ranks. So every rank checks the mean, and all decide alike without a message.

Ranks that hold different gradients, as in ZeRO or in a pipeline, need a message: see `spread_not_finite`. For them
FSDP has a scaler of its own, ShardedGradScaler, which sums over ranks what each of them found.
"""

from collections.abc import Iterable

import torch

from mpcourse.common.comm import Comm
from mpcourse.data_parallel.checked.finite import Sample, looks_finite
from mpcourse.data_parallel.overlap.hooks import when_accumulated


class AveragedFirst:
    """Base class that makes torch's GradScaler see the mean over ranks in an optimizer.

    averaged: whether gradients already are the mean over ranks, as after `mean_gradients()`.
    """

    averaged = False
    _offered = False  # whether a GradScaler has seen this mean

    def mean_gradients(self) -> None:
        """Average gradients over ranks, including those that are not finite. All ranks call it."""
        raise NotImplementedError

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether the optimizer's own step unscales; GradScaler.step asks it first. It does not."""
        if not self.averaged or self._offered:  # if offered, the scaler skipped the last step
            self.mean_gradients()
        self._offered = True
        return False

    def _now_averaged(self) -> None:
        self.averaged, self._offered = True, False


def spread_not_finite(comm: Comm, parameters: Iterable[torch.Tensor]) -> bool:
    """Make gradients NaN on all ranks where one is not finite on any rank; return whether one is. All ranks call it.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    parameters: this rank's, of any number and shape; those without a gradient count as finite.

    This is for ranks that hold different gradients. It takes one allgather of a single bit.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    found = any(comm.allgather(not all(looks_finite(g) for g in gradients)))
    if found:
        for g in gradients:
            g.fill_(float("nan"))
    return found


class Witness:
    """The smallest parameter, which shows whether gradients were changed after backward: `unscale_` changes all.

    parameters: one or more.
    """

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        self.p = min(parameters, key=torch.Tensor.numel)
        self._seen: Sample | None = None  # of its gradient, as backward left it
        self._handle = when_accumulated(self.p, self._look)

    def changed(self) -> bool:
        """Return whether the gradient has changed since the last backward pass."""
        return self._seen is not None and self.p.grad is not None and self._seen.differs(self.p.grad)

    def forget(self) -> None:
        """Allow the gradient to change from now on."""
        self._seen = None

    def _look(self, p: torch.Tensor) -> None:
        self._seen = None if p.grad is None or p.grad.is_sparse else Sample(p.grad)
