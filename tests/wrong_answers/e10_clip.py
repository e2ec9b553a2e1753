"""Wrong answers to e10_clip. What a cell holds is told in tests/answers.py."""

# %% data_counted
# says: data
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
# says: data
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
# says: data
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
# says: one factor
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
# says: one factor
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
# says: takes part
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
# says: 1e-6
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
# says: 1e-6
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
# says: sharded
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
# says: root
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
# says: float32
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
# says: 2-norm
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
# says: largest
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
# says: did not change
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
# says: own norm
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
# says: 1e-6
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
# says: takes part
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
# says: root
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
# says: stays None
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
# says: None
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


# %% norm_above_most
# says: 1e-6
# thinks: Where the norm is not above most nothing is scaled.
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


# %% not_in_place
# says: in place
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
# says: 2-norm
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
# says: scaled on every rank
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
# says: tensor
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
# says: pipeline
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
# says: takes part
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
# says: own norm
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
# says: parameters
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
# says: on every rank
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
# says: stage
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
# says: more than once
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
# says: replicated
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
# says: factor
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
# says: before
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
# says: None
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
# says: float
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
# says: norms do not add up
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
# says: scaled twice
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
# says: above 1
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
# says: sharded
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
# says: sharded
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
# says: replicated
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
# says: scaled
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
# says: empty list
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
# says: norms do not add up
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
# says: norms do not add up
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
# says: own norm
# thinks: torch has a function for this.
import torch


def clip_grad_norm(data, pipeline, tensor, parameters, sharded, most):
    return float(torch.nn.utils.clip_grad_norm_(parameters, most))
