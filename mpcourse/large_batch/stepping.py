"""What the optimizers of this room share."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

Closure = Callable[[], Any]
Params = Iterable[torch.Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, torch.Tensor]]


def run_closure(closure: Closure | None) -> Any:
    """The loss that a closure computes, with gradients; None without one.

    closure: what torch's optimizers take; or None.
    """
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def dense_gradients(group: dict[str, Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(parameter, gradient) for each parameter of a group that has one.

    group: one of an optimizer's param_groups.
    Raises ValueError for a sparse gradient.
    """
    for p in group["params"]:
        if p.grad is None:
            continue
        if p.grad.is_sparse:
            raise ValueError(f"the gradient of a parameter of shape {tuple(p.shape)} is sparse: sparse=False")
        yield p, p.grad


def norm(x: torch.Tensor) -> torch.Tensor:
    """||x||, a tensor of no dimensions, in float32 at least: the squares of half-precision numbers overflow.

    x: of any shape, floating point.
    """
    return torch.linalg.vector_norm(x, dtype=torch.promote_types(x.dtype, torch.float32))
