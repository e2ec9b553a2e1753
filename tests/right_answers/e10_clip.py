"""Right answers to e10_clip. What a cell holds is told in tests/answers.py."""

# %% data_averaged
# thinks: Replicas have the same norm, so their mean is that norm, too.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    whole = data.allreduce(pipeline.allreduce(tensor.allreduce(squares))) / data.size
    norm = whole**0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% gathered
# thinks: All squares are gathered, and summed by fsum, so that the result depends on no order.
import math

import torch


def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    mine = [
        torch.linalg.vector_norm(p.grad).item() ** 2
        for p, part in zip(parameters, sharded, strict=True)
        if p.grad is not None and (part or tensor.rank == tensor.size - 1)
    ]
    of_stage = [square for part in tensor.allgather(mine) for square in part]
    norm = math.sqrt(math.fsum(square for part in pipeline.allgather(of_stage) for square in part))
    scale = most / (norm + 1e-6)
    with torch.no_grad():
        for p in parameters:
            if p.grad is not None and scale < 1:
                p.grad *= scale
    return norm


# %% hypot
# thinks: The root of a sum of squares is hypot, and it goes over an axis as any other number.
import math


def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    own = math.hypot(
        *(float(p.grad.norm()) for p, part in zip(parameters, sharded) if p.grad is not None and (part or not tensor.rank))
    )
    norm = math.hypot(*pipeline.allgather(math.hypot(*tensor.allgather(own))))
    for p in parameters:
        if p.grad is not None and norm + 1e-6 > most:
            p.grad.mul_(most).div_(norm + 1e-6)
    return norm


# %% norm_above_most
# thinks: Where the norm is not above most nothing is scaled: within 1e-6 of most the factor is 1 all the same.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if norm > most:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% one_rank_sums
# thinks: Tensor rank 0 sums along the pipeline, and tells the others of its tensor axis.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    gradients = [(p.grad, part) for p, part in zip(parameters, sharded, strict=True) if p.grad is not None]
    mine = sum(float(g.flatten() @ g.flatten()) for g, part in gradients if part or tensor.rank == 0)
    stage = tensor.reduce(mine, root=0)
    total = pipeline.allreduce(stage) if tensor.rank == 0 else None
    norm = tensor.bcast(total, root=0) ** 0.5
    if norm + 1e-6 > most:
        for g, _ in gradients:
            g.mul_(most / (norm + 1e-6))
    return norm


# %% two_sums
# thinks: Sharded and replicated squares are kept apart, and only the first are summed over the tensor axis.
import numpy as np
from mpi4py import MPI


def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    sums = np.zeros(2)
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None:
            sums[int(part)] += float(p.grad.norm()) ** 2
    own = sums[1:].copy()
    tensor.Allreduce(MPI.IN_PLACE, own)
    stage = np.array([sums[0] + own[0]])
    total = np.empty(1)
    pipeline.Allreduce(stage, total)
    norm = float(np.sqrt(total[0]))
    factor = np.clip(most / (norm + 1e-6), None, 1.0)
    for p in parameters:
        if p.grad is not None:
            p.grad.copy_(p.grad * float(factor))
    return norm


# %% weights
# thinks: A replicated parameter counts 1/t on each of t ranks, which is 1 together.
import torch


def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    total = torch.zeros((), dtype=torch.float64)
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None:
            total += p.grad.double().square().sum() / (1 if part else tensor.size)
    norm = float(tensor.allreduce(pipeline.allreduce(total)).sqrt())
    for p in parameters:
        if p.grad is not None:
            p.grad *= min(1.0, most / (norm + 1e-6))
    return norm
