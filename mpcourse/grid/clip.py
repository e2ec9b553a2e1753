"""Clipping by the norm of all gradients, when no rank has all of them."""

from collections.abc import Collection, Iterable

import torch

from mpcourse.grid.grid import Grid


def global_norm(
    grid: Grid,
    parameters: Iterable[torch.Tensor],
    sharded: Collection[torch.Tensor],
    elsewhere: Collection[torch.Tensor] = (),
    experts: Collection[torch.Tensor] = (),
) -> float:
    """Return the 2-norm of the whole model's gradient, the same number on all ranks. All ranks of the grid call it.

    grid: its ranks train one model.
    parameters: this rank's, with gradients that are already those of the whole batch (None counts as zeros).
    sharded: parameters that are split over the tensor axis. All others are replicas there, and count once.
    elsewhere: parameters that are tied to a copy on an earlier stage, which counts them.
    experts: parameters that are different along the expert axis.

    Ranks of the data and the context axis have equal gradients, so their squares are not added.
    """
    split, counted_elsewhere, own = ({id(p) for p in each} for each in (sharded, elsewhere, experts))
    squares, of_experts = 0.0, 0.0
    for p in parameters:
        if p.grad is None or id(p) in counted_elsewhere:
            continue
        if id(p) in split or grid.tensor.rank == 0:
            square = float(p.grad.detach().double().square().sum())
            squares, of_experts = (squares, of_experts + square) if id(p) in own else (squares + square, of_experts)
    whole = sum(grid.tensor.allgather(squares + sum(grid.expert.allgather(of_experts))))
    return sum(grid.pipeline.allgather(whole)) ** 0.5


def clip_grad_norm(
    grid: Grid,
    parameters: Iterable[torch.Tensor],
    most: float,
    sharded: Collection[torch.Tensor],
    elsewhere: Collection[torch.Tensor] = (),
    experts: Collection[torch.Tensor] = (),
) -> float:
    """Scale all gradients so that their global norm is at most `most`, as torch's clip_grad_norm_ does on one device.

    grid: its ranks train one model, and all call this.
    parameters: this rank's, with gradients that are already those of the whole batch (None counts as zeros).
    most: the largest norm that is left as it is.
    sharded: parameters that are split over the tensor axis. All others are replicas there, and count once.
    elsewhere: parameters that are tied to a copy on an earlier stage, which counts them.
    experts: parameters that are different along the expert axis.
    Returns the norm before scaling, the same number on all ranks.

    Every rank scales by the same factor, most / (norm + 1e-6), where that is below 1.
    """
    held = list(parameters)
    norm = global_norm(grid, held, sharded, elsewhere, experts)
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in held:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm
