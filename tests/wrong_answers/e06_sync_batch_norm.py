"""Wrong answers to e06_sync_batch_norm. What a cell holds is told in tests/answers.py."""

# %% own_statistics
# says: mean and variance of this rank's own batch
# thinks: Batch norm is a layer like any other: it sees the batch that it is given.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% mean_of_means
# says: mean of the ranks' means
# thinks: Each rank's mean, averaged, is the mean.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        n = max(len(x), 1)
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0) / n, (wide * wide).sum(0) / n])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / comm.size
        variance = squares / comm.size - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% variance_of_own
# says: the variance of this one alone
# thinks: The mean has to be shared; how far values lie apart is much the same everywhere.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = wide.var(0, unbiased=False) if len(x) else torch.ones(x.shape[1], dtype=torch.float64)
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% mean_of_variances
# says: How far the ranks' means lie apart
# thinks: Variances are averaged by the counts, as means are.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (len(x) * wide.var(0, unbiased=False) if len(x) else torch.zeros(x.shape[1], dtype=torch.float64))])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% unbiased
# says: unbiased variance
# thinks: A sample's variance is divided by n - 1.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = (squares / count - mean * mean) * count / (count - 1)
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% eps_outside
# says: It belongs under the root
# thinks: eps only keeps the division from failing.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = 1 / (variance.sqrt() + eps)
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% eps_is_a_constant
# says: eps
# thinks: 1e-5 is what everybody takes.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + 1e-5).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% divides_by_variance
# says: The deviation is its root
# thinks: To normalise is to divide by the variance.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = 1 / (variance + eps)
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% forgets_bias
# says: bias is missing
# thinks: After subtracting the mean there is nothing to add.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% sums_in_float32
# says: x.double() first
# thinks: Sums in float32 are as exact as x is.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x + 0
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        total, squares, count = total.clone(), squares.clone(), count.clone()
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% empty_rank_leaves
# says: brings zeros to both collective calls
# thinks: Who has nothing to normalise has nothing to say.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        if len(x) == 0:
            ctx.save_for_backward(x, weight, weight)
            ctx.comm, ctx.count = comm, 1.0
            return x.clone()
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% divides_by_own_count_when_empty
# says: brings zeros to both collective calls
# thinks: The mean of a rank is x.mean(0), which MPI can average by counts.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), len(x) * wide.mean(0), len(x) * (wide * wide).mean(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% constants_in_backward
# says: treated as constants
# thinks: Mean and variance are numbers, and the derivative of a number is 0.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * wide
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% own_sums_in_backward
# says: over this rank's examples alone
# thinks: Gradients are averaged by the optimizer afterwards, so backward needs no call of its own.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% no_term_of_the_variance
# says: through the variance is missing
# thinks: The mean is what changes when an example changes.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% mean_over_ranks_in_backward
# says: divided by the number of ranks
# thinks: An all-reduce of gradients is a mean over ranks.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.comm.size / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% sums_of_weight_over_all_ranks
# says: counted twice
# thinks: The sums over all ranks are there, and they are the gradient of the whole batch.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), whole[1].to(weight.dtype), whole[0].to(weight.dtype), None, None


# %% weight_and_bias_swapped
# says: gradient of the other one
# thinks: The sum of dy comes first, so it is the gradient of the first of both.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[0].to(weight.dtype), own[1].to(weight.dtype), None, None


# %% three_calls
# says: torch.cat or torch.stack
# thinks: Count, sum and squares are three numbers: three calls.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        for part in sums.split([1, x.shape[1], x.shape[1]]):
            comm.Allreduce(MPI.IN_PLACE, part.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% gathers_examples
# says: need not travel
# thinks: With all examples on each rank it is the batch norm of one process.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        every = torch.cat(comm.allgather(wide.detach()))
        sums = torch.cat([wide.new_tensor([len(every)]), every.sum(0), (every * every).sum(0)])
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% stays_double
# says: the dtype that x has
# thinks: Double is better than float.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return normal * weight + bias

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% too_few_gradients
# says: one gradient for each argument
# thinks: comm and eps have no gradient, so nothing is returned for them.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype)


# %% state_in_the_class
# says: Two layers in a row
# thinks: What forward knows is kept in the class until backward asks for it.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        SyncBatchNorm.kept = normal, weight, inverse
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = SyncBatchNorm.kept
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% by_torch_and_detached
# says: autograd knows nothing of
# thinks: The forward pass is all that changes: torch does the rest.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    with torch.no_grad():
        return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None
