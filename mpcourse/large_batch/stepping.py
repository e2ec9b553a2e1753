"""What the optimizers of this room share."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

Closure = Callable[[], Any]
Params = Iterable[torch.Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, torch.Tensor]]


def run_closure(closure: Closure | None) -> Any:
    """Return the loss that a closure computes, with gradients enabled; None without a closure.

    closure: as torch's optimizers take it, or None.
    """
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def dense_gradients(group: dict[str, Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield (parameter, gradient) for each parameter of a group that has a gradient.

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
    """Return ||x||, a tensor of no dimensions, at least in float32: the squares of half-precision numbers overflow.

    x: of any shape, floating point.
    """
    return torch.linalg.vector_norm(x, dtype=torch.promote_types(x.dtype, torch.float32))
