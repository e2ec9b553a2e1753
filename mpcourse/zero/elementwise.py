"""Whether an optimizer may be given shards: it must compute each element by itself."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

MakeOptimizer = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]  # of groups, e.g. lambda g: SGD(g, lr=0.1)
STEPS = 3


def check_elementwise(make_optimizer: MakeOptimizer) -> None:
    """Raise ValueError unless the optimizer updates a matrix like two halves of its elements, each by itself.

    make_optimizer: makes an optimizer of groups of parameters; it is called twice, with small float64 parameters.

    SGD, Adam, AdamW and the like pass. Optimizers that use a whole layer do not: LARS and LAMB (its norm), Adafactor
    (its rows and columns), Muon (the matrix itself), L-BFGS (all parameters at once).
    """
    draw = torch.Generator().manual_seed(0)
    start, *gradients = (torch.randn(6, 4, dtype=torch.float64, generator=draw) for _ in range(1 + STEPS))
    try:
        whole = _updated(make_optimizer, [start], [[g] for g in gradients])
        halves = _updated(make_optimizer, start.view(-1).split(12), [g.view(-1).split(12) for g in gradients])
    except Exception as error:
        raise ValueError(
            "the optimizer cannot be sharded: it fails with a part of a parameter, a vector, in a plain step() "
            f"({type(error).__name__}: {error})"
        ) from error
    if not torch.allclose(whole, halves, rtol=1e-6, atol=1e-9):
        raise ValueError(
            "the optimizer cannot be sharded: it updates two halves of a parameter otherwise than the whole one, so it "
            "is not element-wise, as SGD and Adam are. LARS, LAMB, Adafactor and Muon look at whole layers"
        )


def _updated(
    make_optimizer: MakeOptimizer, parts: Sequence[torch.Tensor], gradients: Sequence[Sequence[torch.Tensor]]
) -> torch.Tensor:
    """Return all elements after some steps, flattened."""
    parameters = [part.clone().requires_grad_() for part in parts]
    optimizer = make_optimizer([{"params": parameters}])
    for each in gradients:
        for p, gradient in zip(parameters, each, strict=True):
            p.grad = gradient.clone()
        optimizer.step()
    return torch.cat([p.detach().view(-1) for p in parameters])
