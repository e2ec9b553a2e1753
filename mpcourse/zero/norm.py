"""The norm of all gradients where each rank has a shard of them, and whether it is finite."""

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from mpcourse.zero.optimizer import ShardedOptimizer


def global_norm(sharded: "ShardedOptimizer", gradients: list[torch.Tensor]) -> tuple[float, FloatingPointError | None]:
    """Return the 2-norm of the gradients of all parameters, the same on all ranks, and an error or None.

    All ranks call it. Where the norm is not finite, all of them should raise the error.

    sharded: its units, names and communicator are used.
    gradients: this rank's chunk of each unit's gradients, (chunk,), in the parameters' dtype.
    """
    if hasattr(sharded.comm, "count"):  # an AloneComm, without data
        return 0.0, None
    norms = [_norm(gradient) for gradient in gradients]
    bad = next((i for i, norm in enumerate(norms) if not math.isfinite(norm)), None)
    name = None if bad is None else _first_not_finite(sharded, bad, gradients[bad])
    by_rank = sharded.comm.allgather((sum(norm**2 for norm in norms), name))
    error = None
    if names := [name for _, name in by_rank if name is not None]:
        error = FloatingPointError(
            f"the mean of the gradients of {names[0]!r} is not finite, so nothing was updated: look at the losses and "
            "examples of all ranks, or at the learning rate"
        )
    return sum(squares for squares, _ in by_rank) ** 0.5, error


def _norm(gradient: torch.Tensor) -> float:
    """Return the norm of one tensor, at least in float32; in float64, 20 times slower, only where that overflows."""
    norm = torch.linalg.vector_norm(gradient, dtype=torch.promote_types(gradient.dtype, torch.float32)).item()
    return norm if math.isfinite(norm) else torch.linalg.vector_norm(gradient, dtype=torch.float64).item()


def _first_not_finite(sharded: "ShardedOptimizer", i: int, gradient: torch.Tensor) -> str:
    place = int((~gradient.isfinite()).nonzero()[0])
    return sharded.names[sharded.units[i].parameter_at(sharded.comm.rank, place)]
