"""Wrong answers to e10_clip. What a cell holds is told in tests/answers.py."""

# %% all_ranks_counted
# says: A sum over all ranks counts replicas
# thinks: The norm of all is the root of the sum over all ranks.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None:
            squares += float((p.grad**2).sum())
    norm = data.allreduce(pipeline.allreduce(tensor.allreduce(squares))) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% around_a_ring
# says: the same bits of the norm on all ranks
# thinks: Numbers go around the ring, and each rank adds what comes to what it has.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    total = squares
    for axis in (tensor, pipeline):
        passed = total
        for _ in range(axis.size - 1):
            passed = axis.sendrecv(passed, dest=(axis.rank + 1) % axis.size, source=(axis.rank - 1) % axis.size)
            total += passed
    norm = total**0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% data_counted
# says: Replicas are counted
# thinks: All ranks of the grid have gradients, so all squares are summed.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = data.allreduce(pipeline.allreduce(tensor.allreduce(squares))) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% data_rank_0_only
# says: every rank returns the norm
# thinks: Replicas count once, so replica 0 counts.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0) and data.rank == 0:
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% divides_by_data
# says: Divided by the number of replicas
# thinks: The norm is averaged over replicas.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5 / data.size
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% each_parameter_alone
# says: All gradients of all ranks get one factor
# thinks: Every parameter whose gradient is too long is made shorter.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                own = float(p.grad.norm())
                p.grad.mul_(min(1.0, most / (own + 1e-6)))
    return norm


# %% elements_clamped
# says: no clamp
# thinks: Clipping cuts off what is too large.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.clamp_(-most, most)
    return norm


# %% empty_stage_leaves
# says: takes part in every collective call
# thinks: A stage without parameters has nothing to do here.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    if not parameters:
        return 0.0
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% epsilon_8
# says: Nearly. As in torch
# thinks: A small number as in Adam.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-8)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% epsilon_outside
# says: Nearly. As in torch
# thinks: The small number keeps the factor from being zero.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm or 1.0) + 1e-6
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% everything_divided_by_tensor
# says: All is divided by the number of tensor ranks
# thinks: All ranks of the tensor axis count everything, so I divide by their number.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None:
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares) / tensor.size) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% factor_of_square
# says: That is the factor's square
# thinks: The factor is the ratio of what is allowed to what is there, of squares.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most**2 / (norm**2 + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% float32
# says: Rounded on the way
# thinks: Norms need no more than float32.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad.float() ** 2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% largest_element
# says: The norm is the root of a sum of squares
# thinks: The norm of a gradient is its largest element.
from mpi4py import MPI


def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares = max(squares, float(p.grad.abs().max()))
    norm = pipeline.allreduce(tensor.allreduce(squares, op=MPI.MAX), op=MPI.MAX)
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% largest_norm
# says: the largest norm of a rank's share
# thinks: The largest of all norms decides, so that no rank is above it.
from mpi4py import MPI


def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares, op=MPI.MAX), op=MPI.MAX) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% local_name_only
# says: multiply p.grad itself
# thinks: A gradient is scaled by multiplying it.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                gradient = p.grad
                gradient = gradient * factor
    return norm


# %% local_norm
# says: the norm of each rank's own gradients
# thinks: Each rank clips the gradients that it has.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None:
            squares += float((p.grad**2).sum())
    norm = squares**0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% no_epsilon
# says: Nearly. As in torch
# thinks: most / norm makes the norm exactly most.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / norm if norm else 1.0
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% no_gradient_leaves
# says: takes part in every collective call
# thinks: Where no parameter has a gradient there is nothing to clip.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    if all(p.grad is None for p in parameters):
        return 0.0
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% no_root
# says: That is the square of the norm
# thinks: The sum of squares is compared with the largest that is allowed.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares))
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% none_becomes_zeros
# says: A gradient that is None stays None
# thinks: A gradient that is None counts as zeros, so it becomes zeros.
import torch


def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    for p in parameters:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% none_not_expected
# says: A .grad may be None: then it counts as zeros, and stays None.
# thinks: Every parameter has a gradient after backward.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if part or tensor.rank == 0:
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            p.grad.mul_(factor)
    return norm


# %% normalized
# says: Scaled to a norm of 1
# thinks: A gradient that is too long becomes a unit vector.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        factor = 1 / (norm + 1e-6)
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% not_in_place
# says: makes a new tensor
# thinks: The new gradient takes the place of the old one.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad = p.grad * factor
    return norm


# %% one_norm
# says: The norm is the root of a sum of squares
# thinks: The norm is the sum of what the elements are, without their signs.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float(p.grad.abs().sum())
    norm = pipeline.allreduce(tensor.allreduce(squares))
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% only_counted_ones_scaled
# says: all ranks scale all gradients
# thinks: A rank scales what it has counted.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None and tensor.rank == 0:
                p.grad.mul_(factor)
    return norm


# %% only_pipeline_axis
# says: Summed over the pipeline axis alone
# thinks: The model is cut into stages, whose squares add up.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None:
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(squares) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% only_tensor_axis
# says: Summed over the tensor axis alone
# thinks: The tensor axis is where a parameter is cut, so this axis has to be summed.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = tensor.allreduce(squares) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% others_leave
# says: takes part in every collective call
# thinks: Ranks that have nothing to add need not call allreduce.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    if squares:
        squares = pipeline.allreduce(tensor.allreduce(squares))
    norm = squares**0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% own_norm_decides
# says: No rank's own norm is above 5.0
# thinks: A rank whose own gradient is short enough leaves it as it is.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if squares**0.5 > most:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% parameters_scaled
# says: Clipping scales p.grad
# thinks: What is too large is scaled down: p.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.data.mul_(factor)
    return norm


# %% reduce
# says: every rank returns the norm
# thinks: Rank 0 computes the norm.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    squares = tensor.reduce(squares)
    squares = pipeline.reduce(squares) if tensor.rank == 0 else None
    norm = squares**0.5 if squares is not None else 0.0
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% replicated_counted_by_pipeline_rank_0
# says: counted on the first pipeline stage alone
# thinks: What all ranks have is counted by the first.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == pipeline.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% replicated_counted_often
# says: tensor ranks have are counted 2 times
# thinks: The sum over all ranks that have parts of the model is the sum over the model.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None:
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% replicated_left_out
# says: Only sharded parameters are in it
# thinks: Replicated parameters need no communication, so they are not in the sum.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and part:
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% returns_factor
# says: That is the factor
# thinks: What the caller needs is by how much gradients were scaled.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return factor


# %% returns_norm_after
# says: the norm after clipping
# thinks: The norm after clipping is what the step has.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return min(norm, most)


# %% returns_nothing
# says: is the norm returned?
# thinks: The function works in place.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)


# %% returns_tensor
# says: A float was asked
# thinks: A tensor with one number is a number.
import torch


def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return torch.tensor(norm)


# %% root_between_axes
# says: Norms of parts do not add up
# thinks: A norm along each axis: of the stage first, then of the pipeline.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares) ** 0.5)
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% scaled_twice
# says: That is the factor's square
# thinks: The norm of a sharded parameter is known on the tensor axis only, so it is scaled there, and then by all.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
        for p, part in zip(parameters, sharded, strict=True):
            if part and p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% scaled_up
# says: never larger
# thinks: After clipping the norm is `most`.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor != 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% sharded_inverted
# says: The wrong way round
# thinks: A sharded parameter is the same on all ranks, so one of them counts it.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (not part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% sharded_on_one_rank_only
# says: tensor ranks have other parts of what is sharded
# thinks: Tensor rank 0 counts for all ranks of the tensor axis.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and tensor.rank == 0:
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% sharded_ones_forgotten_elsewhere
# says: Only sharded parameters are in it
# thinks: Only what is cut has to be counted on the others, and replicated parameters are on rank 1 already.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 1):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% sharded_ones_scaled
# says: Others were scaled, and this one was not
# thinks: Only what is cut takes part in clipping over ranks.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p, part in zip(parameters, sharded, strict=True):
            if p.grad is not None and part:
                p.grad.mul_(factor)
    return norm


# %% stack_of_nothing
# says: A stage without parameters adds 0
# thinks: torch.stack makes one tensor of all norms.
import torch


def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = []
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares.append((p.grad**2).sum())
    squares = float(torch.stack(squares).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% sum_of_norms
# says: Norms of parts do not add up
# thinks: The norm of the whole is the sum of the norms of the parts.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares**0.5))
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% sum_of_parameters_norms
# says: The norm is the root of a sum of squares
# thinks: Each parameter has a norm, and they are summed.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, part in zip(parameters, sharded, strict=True):
        if p.grad is not None and (part or tensor.rank == 0):
            squares += float(p.grad.norm())
    norm = pipeline.allreduce(tensor.allreduce(squares))
    factor = most / (norm + 1e-6)
    if factor < 1:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(factor)
    return norm


# %% torch_clips
# says: the norm of each rank's own gradients
# thinks: torch has a function for this.
import torch


def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    return float(torch.nn.utils.clip_grad_norm_(parameters, most))


# %% norm_of_this_ranks_share
# says: the norm of this rank's own share
# thinks: Each rank clips what it has.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = sum(
        float((p.grad**2).sum())
        for p, part in zip(parameters, sharded)
        if p.grad is not None and (part or tensor.rank == 0)
    )
    norm = squares**0.5
    for p in parameters:
        if p.grad is not None:
            p.grad.mul_(min(1.0, most / (norm + 1e-6)))
    return norm


# %% max_over_ranks
# says: the largest norm of a rank's share
# thinks: The largest norm of any rank is what has to be held down.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = sum(
        float((p.grad**2).sum())
        for p, part in zip(parameters, sharded)
        if p.grad is not None and (part or tensor.rank == 0)
    )
    norm = max(pipeline.allgather(max(tensor.allgather(squares)))) ** 0.5
    for p in parameters:
        if p.grad is not None:
            p.grad.mul_(min(1.0, most / (norm + 1e-6)))
    return norm


# %% each_stage_by_its_own
# says: All gradients of all ranks get one factor
# thinks: The norm is of all; a stage is clipped by its own.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = sum(
        float((p.grad**2).sum())
        for p, part in zip(parameters, sharded)
        if p.grad is not None and (part or tensor.rank == 0)
    )
    stage = tensor.allreduce(squares)
    for p in parameters:
        if p.grad is not None:
            p.grad.mul_(min(1.0, most / (stage**0.5 + 1e-6)))
    return pipeline.allreduce(stage) ** 0.5


# %% one_norm_a_parameter
# says: All gradients of all ranks get one factor
# thinks: Each parameter is clipped by its own norm.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    total = 0.0
    for p, part in zip(parameters, sharded):
        if p.grad is None:
            continue
        square = float((p.grad**2).sum())
        if part:
            square = tensor.allreduce(square)
        total += square
        p.grad.mul_(min(1.0, most / (square**0.5 + 1e-6)))
    return pipeline.allreduce(total) ** 0.5


# %% without_tensor_sum
# says: Summed over the pipeline axis alone
# thinks: Only stages differ, so the sum goes over the pipeline.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = sum(float((p.grad**2).sum()) for p in parameters if p.grad is not None)
    norm = pipeline.allreduce(squares) ** 0.5
    for p in parameters:
        if p.grad is not None:
            p.grad.mul_(min(1.0, most / (norm + 1e-6)))
    return norm


# %% root_before_the_pipeline
# says: Norms of parts do not add up
# thinks: First the norm of a stage, then the sum over stages.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = sum(
        float((p.grad**2).sum())
        for p, part in zip(parameters, sharded)
        if p.grad is not None and (part or tensor.rank == 0)
    )
    norm = pipeline.allreduce(tensor.allreduce(squares) ** 0.5)
    for p in parameters:
        if p.grad is not None:
            p.grad.mul_(min(1.0, most / (norm + 1e-6)))
    return norm


# %% nothing_to_clip_here
# says: A stage without parameters adds 0
# thinks: A rank without parameters has nothing to do.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    if not parameters:
        return 0.0
    squares = sum(
        float((p.grad**2).sum())
        for p, part in zip(parameters, sharded)
        if p.grad is not None and (part or tensor.rank == 0)
    )
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    for p in parameters:
        if p.grad is not None:
            p.grad.mul_(min(1.0, most / (norm + 1e-6)))
    return norm


# %% sum_over_the_world
# says: comm is the communicator to use: rank, size and calls of MPI.COMM_WORLD may be others.
# thinks: The grid is all ranks, and replicas are counted out again.
from mpi4py import MPI


def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, split in zip(parameters, sharded):
        if p.grad is not None and (split or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = (MPI.COMM_WORLD.allreduce(squares) / data.size) ** 0.5
    factor = min(1.0, most / (norm + 1e-6))
    for p in parameters:
        if p.grad is not None and factor < 1:
            p.grad *= factor
    return norm


# %% viewed_as_a_row
# says: A gradient need not be contiguous: .reshape(-1) copies where it has to, .view(-1) does not.
# thinks: A gradient is a row of numbers in memory.
def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, split in zip(parameters, sharded):
        if p.grad is not None and (split or tensor.rank == 0):
            squares += float(p.grad.view(-1) @ p.grad.view(-1))
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = min(1.0, most / (norm + 1e-6))
    for p in parameters:
        if p.grad is not None and factor < 1:
            p.grad *= factor
    return norm


# %% largest_tensor_rank
# says: That is a sum over one axis, and the largest of these over the other one: sum squares over both axes.
# thinks: Tensor ranks have the same norm, or about that: take the largest.
from mpi4py import MPI


def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, split in zip(parameters, sharded):
        if p.grad is not None and (split or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = tensor.allreduce(pipeline.allreduce(squares), op=MPI.MAX) ** 0.5
    factor = min(1.0, most / (norm + 1e-6))
    for p in parameters:
        if p.grad is not None and factor < 1:
            p.grad *= factor
    return norm


# %% factor_in_float32
# says: Rounded on the way: gradients of float64 are multiplied by a float64, most / (norm + 1e-6).
# thinks: A factor needs no more than float32.
import torch


def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    squares = 0.0
    for p, split in zip(parameters, sharded):
        if p.grad is not None and (split or tensor.rank == 0):
            squares += float((p.grad**2).sum())
    norm = pipeline.allreduce(tensor.allreduce(squares)) ** 0.5
    factor = float(torch.tensor(min(1.0, most / (norm + 1e-6))))
    for p in parameters:
        if p.grad is not None and factor < 1:
            p.grad *= factor
    return norm
